"""When reports are made: at a source's end plus a random delay, both fixed before any conversion."""

import math

from maskedlark.privacy.settings import Delay
from maskedlark.randomness import Randomness


def wait(delay: Delay, rng: Randomness) -> int:
    """A random wait in seconds, from the declared distribution: never over `most_s`."""
    unit = float(rng.unit(1)[0])
    if delay.mean_s is None:
        return int(unit * (delay.most_s + 1))
    # An exponential, cut off at most_s: the inverse of its distribution function.
    within = -math.expm1(-delay.most_s / delay.mean_s)
    return min(delay.most_s, int(-delay.mean_s * math.log1p(-unit * within)))
