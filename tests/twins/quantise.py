"""The paper's probabilistic quantisation in exact fractions: the distribution, not a draw."""

from fractions import Fraction


def distribution(label: Fraction, low: int, high: int, buckets: int) -> dict[int, Fraction]:
    """The probability of every integer that a label can become."""
    step = Fraction(high - low, buckets)
    index = min((label - low) // step, buckets - 1)
    lower = low + index * step
    up = (label - lower) / step
    answer: dict[int, Fraction] = {}
    for boundary, weight in ((lower, 1 - up), (lower + step, up)):
        whole = boundary // 1
        for integer, share in ((whole, 1 - (boundary - whole)), (whole + 1, boundary - whole)):
            if weight * share:
                answer[int(integer)] = answer.get(int(integer), Fraction(0)) + weight * share
    return answer
