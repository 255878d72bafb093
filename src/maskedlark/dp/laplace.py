"""Laplace noise on integers: exactly a continuous Laplace variable, rounded to the nearest integer.

Adding it to an integer is the same as rounding after the noise, so it costs no more than the continuous
mechanism under every accountant. (The difference of two geometric variables would not do: for a sensitivity
of 1 it is randomised response, which composes worse than Laplace's Rényi divergence says.)

The rounded variable is 0 with probability 1 - e^(-1/2b); else it has a fair sign and the magnitude 1 + G,
with P(G = n) in proportion to e^(-n/b). The binary digits of G are independent, digit i being 1 with
probability 1 / (1 + e^(2^i / b)). So coins alone draw it, without a logarithm or its gaps.

What is left of the approximation: a coin's probability is rounded to a multiple of 2^-64, and digits that are
1 more rarely than 2^-65 are left out. There are at most 62 digits, so a draw is within 2^-58 of its law in
total variation: δ grows by less than (1 + e^ε) 2^-58 per coordinate that a record can touch.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 15
"""This many draws are made together: their words stay in a core's cache."""
_WORD = 1 << 64
_REST = 48
_PRECISE = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])


@dataclass(frozen=True)
class Laplace:
    """The noise of one helper: its multiplier, and the sensitivity that it multiplies."""

    noise: float
    l1: int

    @property
    def scale(self) -> float:
        """The b of e^(-|x|/b)."""
        return self.noise * self.l1

    @property
    def deviation(self) -> float:
        """The standard deviation, rounding included."""
        rate = 1 / self.scale
        return math.exp(-rate / 4) * math.sqrt(1 + math.exp(-rate)) / -math.expm1(-rate)

    def tail(self, helpers: int) -> int:
        """A bound on the sum of `helpers` helpers' noise, which fails with a probability below 2^-63.

        Chernoff's, at 3/4 of the rate: 2 (16/7)^N e^(-45 - 0.9 N). Rounding moves each by half a unit.
        """
        return math.ceil((60 + 1.2 * helpers) * self.scale + helpers / 2)

    def draw(self, bits: np.random.BitGenerator, count: int) -> NDArray[np.int64]:
        """`count` draws. Run by helpers."""
        drawn = np.empty(count, np.int64)
        for start in range(0, count, _AT_ONCE):
            part = drawn[start : start + _AT_ONCE]
            part[:] = self._block(bits, len(part))
        return drawn

    def _block(self, bits: np.random.BitGenerator, count: int) -> NDArray[np.int64]:
        other_than_zero, digits = _coins(self.noise, self.l1)
        magnitude = np.ones(count, np.int64)
        for place, chance in enumerate(digits):
            magnitude += _toss(bits, chance, count) << np.int64(place)
        magnitude *= _toss(bits, other_than_zero, count)
        return magnitude * (1 - 2 * _toss(bits, _WORD // 2, count))


def _toss(bits: np.random.BitGenerator, chance: int, count: int) -> NDArray[np.int64]:
    """Coins that show 1 with probability chance / 2^64. The first 16 bits settle nearly all of them."""
    words: NDArray[np.uint64] = bits.random_raw(-(-count // 4))
    first = words.astype("<u8", copy=False).view("<u2")[:count]
    coins = (first < chance >> _REST).astype(np.int64)
    tied = np.flatnonzero(first == chance >> _REST)
    rest: NDArray[np.uint64] = bits.random_raw(tied.size)
    coins[tied] = rest >> np.uint64(64 - _REST) < np.uint64(chance & ((1 << _REST) - 1))
    return coins


@lru_cache(maxsize=256)
def _coins(noise: float, l1: int) -> tuple[int, tuple[int, ...]]:
    """The chances of a nonzero number and of each digit, in 2^-64. Decimal: the same on every platform."""
    with localcontext(_PRECISE):
        rate = 1 / (Decimal(noise) * l1)
        other_than_zero = round((-rate / 2).exp() * _WORD)
        return min(other_than_zero, _WORD - 1), tuple(_digits(rate))


def _digits(rate: Decimal) -> Iterator[int]:
    while chance := round(_WORD / (1 + rate.exp())):
        yield chance
        rate *= 2
