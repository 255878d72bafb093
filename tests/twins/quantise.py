"""The paper's probabilistic quantisation in exact fractions: its distribution, and its draws."""

from collections.abc import Iterator
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


def draw(label: Fraction, low: int, high: int, buckets: int, words: Iterator[int]) -> int:
    """The integer that a label becomes with these uniform 64-bit words."""
    step = Fraction(high - low, buckets)
    index = (label - low) // step
    boundary = low + (index + below((label - low) / step - index, words)) * step
    whole = boundary // 1
    mask = (1 << (buckets - 1).bit_length()) - 1
    chosen = next(word & mask for word in words if word & mask < buckets)
    return int(whole + (chosen < (boundary - whole) * buckets))


def below(chance: Fraction, words: Iterator[int]) -> bool:
    """Whether a uniform number is below a probability: its digits to base 2^64, until they decide."""
    least, width = Fraction(0), Fraction(1)
    while least < chance < least + width:
        width /= 1 << 64
        least += next(words) * width
    return least + width <= chance
