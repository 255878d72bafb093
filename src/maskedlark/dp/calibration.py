"""The least noise with which a session stays within a budget. Run by planners, and to explain a refusal."""

import math
from bisect import bisect_left

from maskedlark.dp.accountant import MAX_INDEX, multiplier
from maskedlark.dp.mechanisms import MAX_NOISE, MIN_NOISE, Kind
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, batch_bound, coalition_epsilon
from maskedlark.errors import NotDeclared

_WIDER = 4.0
"""The search brackets the noise between powers of this."""
_ALMOST = 1e-9
_BESIDE = 8
"""Each evaluation takes a fraction of a second, so the root is only found to within this many multipliers."""


def noise_for_session(
    kind: Kind,
    rate: float,
    steps: int,
    delta: float,
    epsilon: float,
    coalition: float = math.inf,
    batches: int | None = None,
) -> float:
    """The least noise with which a session costs at most ε, and at most `coalition` against a coalition.

    `batches`: as in `SessionCharge`; by default what a Poisson session announces, or all steps. The result
    has four digits, and has itself passed the check.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import

    def over(noise: float) -> float:
        """By what factor the figure that is further over its limit exceeds it."""
        charge = planned(kind, noise, rate, steps, delta, batches)
        return max(adserver_epsilon(charge) / epsilon, coalition_epsilon(charge) / coalition)

    if epsilon <= 0 or coalition <= 0 or over(MAX_NOISE) > 1:
        raise NotDeclared("no noise fits what is left of the budget: plan fewer steps, or none")
    low = high = 1.0
    while over(high) > 1:
        low, high = high, min(high * _WIDER, MAX_NOISE)
    while over(low) <= 1:
        if low == MIN_NOISE:
            return low
        low, high = max(low / _WIDER, MIN_NOISE), low
    # Figures fall roughly as a power of the noise, which in logarithms is nearly a line.
    root = brentq(
        lambda x: math.log(max(over(math.exp(x)), _ALMOST)), math.log(low), math.log(high), xtol=1e-5
    )
    near = bisect_left(range(MAX_INDEX), math.exp(root), key=multiplier)
    beside = range(max(near - _BESIDE, 0), min(near + _BESIDE, MAX_INDEX))
    return multiplier(beside.start + bisect_left(beside, 1, key=lambda index: over(multiplier(index)) <= 1))


def planned(
    kind: Kind, noise: float, rate: float, steps: int, delta: float, batches: int | None = None
) -> SessionCharge:
    """A session's charge as it is known before a helper has drawn a batch. Run by planners."""
    least = batch_bound(kind, noise, rate, steps, delta) if rate < 1 else steps
    return SessionCharge(kind, noise, rate, steps, least if batches is None else batches, delta)
