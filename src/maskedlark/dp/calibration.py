"""The least noise of a course that costs no more than one may spend. Run by who plans, and by a refusal."""

import math
from bisect import bisect_left

from maskedlark.dp.accountant import MAX_INDEX, multiplier
from maskedlark.dp.mechanisms import MAX_NOISE, MIN_NOISE, Kind
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, announced, coalition_epsilon
from maskedlark.errors import NotDeclared

_WIDER = 4.0
"""The noise that costs just enough is looked for between powers of this."""
_ALMOST = 1e-9
_BESIDE = 8
"""A figure takes a fraction of a second: the root is good to a few of the multipliers beside it."""


def noise_for_session(
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
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import

    def over(noise: float) -> float:
        """By what factor the dearer figure is over what it may be."""
        course = planned(kind, noise, rate, steps, delta, batches)
        return max(adserver_epsilon(course) / epsilon, coalition_epsilon(course) / coalition)

    if epsilon <= 0 or coalition <= 0 or over(MAX_NOISE) > 1:
        raise NotDeclared("no noise fits what is left of the budget: plan fewer steps, or none")
    low = high = 1.0
    while over(high) > 1:
        low, high = high, min(high * _WIDER, MAX_NOISE)
    while over(low) <= 1:
        if low == MIN_NOISE:
            return low
        low, high = max(low / _WIDER, MIN_NOISE), low
    # Figures fall about as a power of noise: in logarithms that is nearly a line.
    root = brentq(
        lambda x: math.log(max(over(math.exp(x)), _ALMOST)), math.log(low), math.log(high), xtol=1e-5
    )
    near = bisect_left(range(MAX_INDEX), math.exp(root), key=multiplier)
    beside = range(max(near - _BESIDE, 0), min(near + _BESIDE, MAX_INDEX))
    return multiplier(beside.start + bisect_left(beside, 1, key=lambda index: over(multiplier(index)) <= 1))


def planned(
    kind: Kind, noise: float, rate: float, steps: int, delta: float, batches: int | None = None
) -> SessionCharge:
    """A course as it can be known before a helper has drawn a batch. Run by who plans."""
    least = announced(kind, noise, rate, steps, delta) if rate < 1 else steps
    return SessionCharge(kind, noise, rate, steps, least if batches is None else batches, delta)
