"""Gaussian noise on integers: 2^g times a rounded draw of up to 2^30 steps per deviation, and g uniform bits.

Why it is private: the sum of secret and uniform bits is 2^g h + l, where l is uniform whatever the secret is,
and a record that moves a coordinate by x moves h by less than x / 2^g + 1. Where batches are sampled, each of
the two neighbours is compared with the record's absence, and rounding may move both away from it, in opposite
directions. So the noise on h must cover a sensitivity enlarged by twice 2^g per coordinate: 2 √d 2^g in L2.
(Where the batch is known, half of that would do.) With g = 0 nothing is enlarged. Rounding the noise before
adding it to an integer equals rounding the sum: post-processing.

What is left of the approximation: numpy's ziggurat has layers, each a grid of at most 3.66 times 2^-52, and
beyond 3.65 deviations the logarithm of 53 bits.

- Up to 2^10 steps per deviation, every integer has 2^40 points of each layer, one more or less, up to 3.65
  deviations: its probability is right within a factor of 1 ± 2^-40. None is left out before 12 deviations.
- Above, one draw would be right only within 1 ± 2^-20, too coarse for a gradient of 10^5 coordinates, and
  leave integers out from 8.3 deviations on (at 2^40 steps, from 6.5 on: 2^-33). So two draws are added, each
  rounded, of σ / √2. A grid's distribution function is within 2^-51 of the true one; summed by parts against
  the other draw's smooth law, that makes a factor of 1 ± 2^-48 e^(z²/2) at z deviations. None is left out
  before 11 deviations. Two rounded draws have the law of one with a uniform variable added before rounding
  (but for e^(-π² σ²), and here σ is over 2^10): post-processing too.

The uniform bits are centred but for half a unit: with g > 0 the mean is -1/2, else 0.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import FieldOverflow

FINE_BITS = 30
FINE = 1 << FINE_BITS
"""The most steps in a standard deviation."""
_ONE_DRAW = 1 << 10
"""Up to this many steps per deviation, one draw of numpy's is fine enough."""
_MAX_COARSE = 40
_SMALL = 2.0
"""Below this deviation, the variance that rounding adds is summed exactly, not taken as 1/12."""
_TAIL = 10
"""A Gaussian variable is beyond this many deviations with a probability of 2^-75."""


@dataclass(frozen=True)
class Gaussian:
    """The noise of one helper: its standard deviation, and the number of bits below its steps."""

    sigma: float
    coarse: int = 0

    @property
    def deviation(self) -> float:
        """The standard deviation, rounding and uniform bits included."""
        if self.coarse == 0 and self.sigma < _SMALL:
            return math.sqrt(_rounded_variance(self.sigma))
        step = 4.0**self.coarse
        return math.sqrt(self.sigma**2 + self._draws * step / 12 + (step - 1) / 12)

    @property
    def off(self) -> float:
        """How far a draw may lie from the Gaussian variable that it was made from."""
        rounding = self._draws * 2.0**self.coarse / 2
        return rounding + (2.0**self.coarse / 2 if self.coarse else 0)

    @property
    def _steps(self) -> float:
        """The number of steps per standard deviation."""
        return math.ldexp(self.sigma, -self.coarse)

    @property
    def _draws(self) -> int:
        return 1 if self._steps <= _ONE_DRAW else 2

    def tail(self, helpers: int) -> int:
        """A bound on the sum of `helpers` helpers' noise, which fails with a probability below 2^-75."""
        return math.ceil(_TAIL * math.sqrt(helpers) * self.sigma + helpers * self.off)

    def draw(self, bits: np.random.BitGenerator, count: int) -> NDArray[np.int64]:
        """`count` draws. Run by helpers."""
        normal = np.random.Generator(bits).standard_normal((self._draws, count))
        normal *= self._steps / math.sqrt(self._draws)
        np.rint(normal, out=normal)
        steps: NDArray[np.int64] = normal.astype(np.int64).sum(axis=0)
        if self.coarse == 0:
            return steps
        # In place: a gradient's noise is megabytes, and copying it takes time.
        words: NDArray[np.uint64] = bits.random_raw(count)
        words >>= np.uint64(64 - self.coarse)
        steps <<= np.int64(self.coarse)
        steps += words.view(np.int64)
        steps -= 1 << (self.coarse - 1)
        return steps


def covering(noise: float, l2: float, touched: int) -> Gaussian:
    """The noise that covers a sensitivity, with the fewest coarse bits. They enlarge the sensitivity."""
    if noise * l2 <= FINE:
        return Gaussian(noise * l2)
    for coarse in range(1, _MAX_COARSE):
        sigma = noise * (l2 + 2 * math.sqrt(touched) * 2.0**coarse)
        if sigma <= math.ldexp(FINE, coarse):
            return Gaussian(sigma, coarse)
    raise FieldOverflow("so much Gaussian noise leaves the field: lower the noise or the sensitivity")


def _rounded_variance(sigma: float) -> float:
    """E X² of a rounded variable: the sum over n of (2 n - 1) P(|X| >= n)."""
    root = sigma * math.sqrt(2)
    return math.fsum((2 * n - 1) * math.erfc((n - 0.5) / root) for n in range(1, 10 * int(_SMALL) + 2))
