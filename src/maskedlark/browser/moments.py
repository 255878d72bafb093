"""When reports are made: at a source's end plus a random delay, both fixed before any conversion."""

import numpy as np
from numpy.typing import NDArray

from maskedlark.parameters.settings import Delay
from maskedlark.randomness import Randomness


def waits(delay: Delay, count: int, rng: Randomness) -> NDArray[np.int64]:
    """Random waits in seconds, from the declared distribution: none over `most_s`."""
    unit = rng.unit(count)
    if delay.mean_s is None:
        return (unit * (delay.most_s + 1)).astype(np.int64)
    # An exponential, cut off at most_s: the inverse of its distribution function.
    within = -np.expm1(-delay.most_s / delay.mean_s)
    drawn: NDArray[np.float64] = np.minimum(-delay.mean_s * np.log1p(-unit * within), delay.most_s)
    return drawn.astype(np.int64)
