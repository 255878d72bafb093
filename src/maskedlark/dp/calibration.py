"""The least noise of a course that costs no more than one may spend. Run by who plans, and by a refusal."""

import math
from collections.abc import Callable

from maskedlark.dp.accountant import MOST_INDEX, multiplier
from maskedlark.dp.mechanisms import LEAST_NOISE, MOST_NOISE, Kind
from maskedlark.dp.session_charge import Course, adserver_epsilon, announced, coalition_epsilon
from maskedlark.errors import NotDeclared

_GUESSES = 5
"""A figure takes a fraction of a second: so many guesses come close, and a few more find the least."""
_NEAR = 1e-4
_FLAT = 0.1


def noise_for_course(
    kind: Kind,
    rate: float,
    steps: int,
    delta: float,
    epsilon: float,
    coalition: float = math.inf,
    batches: int | None = None,
) -> float:
    """The least noise with which a course costs at most ε, and against a coalition at most that.

    `batches`, as in a course; left out, what a Poisson course announces, or all steps. Of four digits, and
    what is returned has passed the check itself.
    """

    def over(noise: float) -> float:
        """By what factor the dearer figure is over what it may be."""
        course = planned(kind, noise, rate, steps, delta, batches)
        return max(adserver_epsilon(course) / epsilon, coalition_epsilon(course) / coalition)

    if epsilon <= 0 or coalition <= 0 or over(MOST_NOISE) > 1:
        raise NotDeclared("no noise fits what is left of the budget: plan fewer steps, or none")
    return multiplier(_least(lambda index: over(multiplier(index)) <= 1, _index(_guess(over))))


def planned(
    kind: Kind, noise: float, rate: float, steps: int, delta: float, batches: int | None = None
) -> Course:
    """A course as it can be known before a helper has drawn a batch. Run by who plans."""
    least = announced(kind, noise, rate, steps, delta) if rate < 1 else steps
    return Course(kind, noise, rate, steps, least if batches is None else batches, delta)


def _guess(over: Callable[[float], float]) -> float:
    """Near the least noise: figures fall about as a power of noise, which two guesses tell."""
    noise, slope, before = 1.0, -1.0, (0.0, 0.0)
    for turn in range(_GUESSES):
        factor = max(over(noise), _NEAR)
        here = math.log(noise), math.log(factor)
        if turn and here[0] != before[0]:
            slope = min((here[1] - before[1]) / (here[0] - before[0]), -_FLAT)
        before = here
        noise = min(max(math.exp(here[0] - here[1] / slope), LEAST_NOISE), MOST_NOISE)
        if abs(factor - 1) < _NEAR:
            break
    return noise


def _index(noise: float) -> int:
    low, high = 0, MOST_INDEX
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if multiplier(middle) >= noise else (middle + 1, high)
    return high


def _least(fits: Callable[[int], bool], start: int) -> int:
    """The least index that fits, looked for near the start: wider and wider, then by halves."""
    wide, high = 1, start
    while not fits(high):
        high, wide = min(high + wide, MOST_INDEX), 2 * wide
    low, wide = high - 1, 1
    while low > 0 and fits(low):
        low, high, wide = max(low - wide, 0), low, 2 * wide
    if low <= 0 and fits(0):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
