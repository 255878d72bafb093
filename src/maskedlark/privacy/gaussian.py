"""Gaussian noise on integers: 2^g times a rounded draw of at most 2^30 standard units, plus g uniform bits.

Why it is private: the sum of secret and uniform bits is 2^g h + l, where l is uniform whatever the secret is,
and a replaced secret that moves a coordinate by x moves h by less than x / 2^g + 1. So the noise on h has to
cover a sensitivity enlarged by 2^g a coordinate: √d 2^g in L2. With g = 0 nothing is enlarged. Rounding what
is added to an integer is rounding after the noise: post-processing.

What is left of the approximation: numpy's ziggurat has a grid of 2^-52 times at most 3.66. So up to 3.65
deviations every integer is met by 2^20 points of each layer, one more or less: its probability is right
within a factor of 1 ± 2^-20. Beyond, the sampler takes the logarithm of 53 bits. At 2^30 units that leaves
integers out from 8.3 deviations on, where a draw comes with a probability of 2^-53; at 2^40 units it would be
from 6.5 on, and 2^-33. The uniform bits are centred but for half a unit: with g > 0 the mean is -1/2, else 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import FieldOverflow

FINE_BITS = 30
FINE = 1 << FINE_BITS
"""The most steps in a standard deviation."""
_MOST_COARSE = 40
_SMALL = 2.0
"""Below this deviation, what rounding adds to the variance is summed up, not taken for 1/12."""
_TAIL = 10
"""A Gaussian variable is beyond so many deviations with a probability of 2^-75."""


@dataclass(frozen=True)
class Gaussian:
    """The noise of one helper: its standard deviation, and the bits below its steps."""

    sigma: float
    coarse: int = 0

    @property
    def deviation(self) -> float:
        """The standard deviation, rounding and uniform bits included."""
        if self.coarse == 0 and self.sigma < _SMALL:
            return math.sqrt(_rounded_variance(self.sigma))
        step = 4.0**self.coarse
        return math.sqrt(self.sigma**2 + step / 12 + (step - 1) / 12)

    @property
    def off(self) -> float:
        """How far a draw may lie from the Gaussian variable that it was made of."""
        return 0.5 if self.coarse == 0 else 2.0**self.coarse

    def tail(self, helpers: int) -> int:
        """A bound on the sum of so many helpers' noise, which fails with a probability below 2^-75."""
        return math.ceil(_TAIL * math.sqrt(helpers) * self.sigma + helpers * self.off)

    def draw(self, bits: np.random.BitGenerator, count: int) -> NDArray[np.int64]:
        """So many draws. Run by helpers."""
        normal = np.random.Generator(bits).standard_normal(count)
        steps = np.rint(normal * (self.sigma / 2.0**self.coarse)).astype(np.int64)
        if self.coarse == 0:
            return steps
        words: NDArray[np.uint64] = bits.random_raw(count)
        below = (words >> np.uint64(64 - self.coarse)).astype(np.int64) - (1 << (self.coarse - 1))
        return (steps << np.int64(self.coarse)) + below


def covering(noise: float, l2: float, touched: int) -> Gaussian:
    """The noise that covers a sensitivity, with the fewest coarse bits. The enlarged sensitivity counts."""
    if noise * l2 <= FINE:
        return Gaussian(noise * l2)
    for coarse in range(1, _MOST_COARSE):
        sigma = noise * (l2 + math.sqrt(touched) * 2.0**coarse)
        if sigma <= math.ldexp(FINE, coarse):
            return Gaussian(sigma, coarse)
    raise FieldOverflow("so much Gaussian noise leaves the field: lower the noise or the sensitivity")


def _rounded_variance(sigma: float) -> float:
    """E X² of a rounded variable: the sum over n of (2 n - 1) P(|X| >= n)."""
    root = sigma * math.sqrt(2)
    return math.fsum((2 * n - 1) * math.erfc((n - 0.5) / root) for n in range(1, 10 * int(_SMALL) + 2))
