"""Local differential privacy: noise that a browser adds before anything leaves it. Run by the browser.

`features` adds Laplace(Δ/ε) to byte features, rounds and clips to 0…255; `labels` applies k-ary randomised
response. Both are drawn once per source and stored: a second draw for the same source would double every
epsilon stated here. Randomised response covers all sources alike, converted or not (label 0 is randomised
too), and it hides which label a record has, not whether it is a fake.

The usual approximations are avoided. A 53-bit uniform through an inverse Laplace CDF stops at 36.7 scales, so
an output beyond that would rule out a neighbouring input. Here a uniform number is compared with the exact
cut points between outcomes, by its first 64 bits, and by more bits if those do not decide (once in 2^55
draws). So every outcome has the probability of a continuous Laplace variable, rounded and clipped, which is
post-processing: the guarantee is pure, tails included. What remains: a cut point's bits come from decimal
arithmetic with 30 guard digits, so they are right unless the number lies within 10^-29 of its last bit from a
whole one; and the generator is computational, as all are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core.labels import LabelSpace, integers
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

MIN_EPSILON, MAX_EPSILON = 1e-6, 1e6
"""Below, nothing is left of a byte or a label; above, there is no noise."""
LARGEST = 255
"""The largest byte, and the largest difference of two bytes."""

_WORD = 64
_GUARD_DIGITS = 30
_AT_ONCE = 1 << 20
"""Features noised at once: bounds memory for any table."""

Cuts = Callable[[int], Sequence[int]]
"""The first n bits, as integers, of ascending irrational cut points in (0, 1)."""


class Declared:
    """Part of a model. Documents hold it as it is, and refuse unknown settings."""

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}


@dataclass(frozen=True)
class FeatureNoise(Declared):
    """Laplace(Δ/ε) on every byte feature.

    The guarantee is for features that change by at most `sensitivity` each. Below 255 that relies on the
    ad server's declaration; `FeatureNoise.any_change` holds without it.
    """

    epsilon: float
    sensitivity: float

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        if not (_is_number(self.sensitivity) and 1 <= self.sensitivity <= LARGEST):
            raise NotDeclared(
                f"a feature's sensitivity is 1 to {LARGEST}, the least and most that a byte can change, "
                f"not {self.sensitivity}; declare {LARGEST} when in doubt"
            )

    @property
    def any_change(self) -> float:
        """One feature's epsilon when it may change from any byte to any other."""
        return self.epsilon * LARGEST / self.sensitivity


@dataclass(frozen=True)
class RandomisedResponse(Declared):
    """The true label with e^ε times the probability of each other label of its space."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def unbiasing(self, space: LabelSpace) -> tuple[float, float]:
        """a and b of E[one-hot after randomised response] = a · one-hot + b, in every place of the space."""
        # In powers of e^-ε, which vanish where e^ε would overflow.
        total = 1 + (len(space) - 1) * math.exp(-self.epsilon)
        return -math.expm1(-self.epsilon) / total, math.exp(-self.epsilon) / total


@dataclass(frozen=True)
class Guarantee:
    """The epsilon of one source's whole record from local noise alone; infinite for a part without noise."""

    features: float
    """When every feature changes by at most its sensitivity."""
    any_features: float
    """When every feature changes from any byte to any other."""
    labels: float
    """When every label changes."""

    @property
    def total(self) -> float:
        """When labels change, and features within their sensitivity."""
        return self.features + self.labels


def guarantee(
    count: int, noise: FeatureNoise | None = None, responses: Sequence[RandomisedResponse | None] = ()
) -> Guarantee:
    """A source's guarantee for `count` features under one noise, and one response per label. Run by anyone.

    Each feature has its own noise, so the vector costs d times a feature's epsilon, and labels add up.
    It holds once per source; reports made of the same draws are post-processing and cost nothing more.
    """
    if count < 0:
        raise NotDeclared(f"a record has 0 features or more, not {count}")
    one, most = (noise.epsilon, noise.any_change) if noise else (math.inf, math.inf)
    labels = math.fsum(response.epsilon if response else math.inf for response in responses)
    return Guarantee(count * one if count else 0.0, count * most if count else 0.0, labels)


def features(rows: NDArray[np.uint8], noise: FeatureNoise, rng: Randomness) -> NDArray[np.uint8]:
    """Byte features (n, d) with noise, rounded and clipped to 0…255. Run by the browser, once per source."""
    if rows.dtype != np.uint8 or rows.ndim != 2:
        raise NotDeclared(f"features are rows of bytes (n, d), not {rows.dtype} of shape {rows.shape}")
    given = rows.reshape(-1)
    noisy = np.empty_like(given)
    cuts = partial(_laplace_cuts, noise.epsilon, noise.sensitivity)
    for start in range(0, given.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        # Bytes are integers, so the noise can be rounded instead of the sum; beyond ±255 it clips anyway.
        drawn = _past(cuts, given[part].size, rng) - LARGEST
        noisy[part] = np.clip(given[part] + drawn, 0, LARGEST)
    return noisy.reshape(rows.shape)


def labels(
    truth: ArrayLike, space: LabelSpace, response: RandomisedResponse, rng: Randomness
) -> NDArray[np.int64]:
    """Quantised labels (n,) after randomised response. Run by the browser, once per source.

    With probability k / (e^ε + k - 1) a label is replaced by one drawn from all k, itself included. Every
    draw is made for every record, so neither time nor randomness used depends on a label.
    """
    index = space.index(integers(truth, "label"))
    kept = _past(partial(_replaced_cuts, response.epsilon, len(space)), index.size, rng) == 1
    drawn = rng.below(len(space), index.size)
    return np.array(space.values)[np.where(kept, index, drawn)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_epsilon(epsilon: float) -> None:
    # NaN fails every comparison, so it is refused here too.
    if not (_is_number(epsilon) and MIN_EPSILON <= epsilon <= MAX_EPSILON):
        raise NotDeclared(f"an epsilon is a number from {MIN_EPSILON:g} to {MAX_EPSILON:g}, not {epsilon}")


def _past(cuts: Cuts, count: int, rng: Randomness) -> NDArray[np.int64]:
    """How many cut points each of `count` uniform numbers is past: exact; draws more bits if needed."""
    table = np.array(cuts(_WORD), np.uint64)
    words = rng.words(count)
    past = np.searchsorted(table, words).astype(np.int64)
    for place in np.flatnonzero(table[np.minimum(past, len(table) - 1)] == words):
        past[place] = _settle(cuts, int(words[place]), rng)
    return past


def _settle(cuts: Cuts, number: int, rng: Randomness) -> int:
    """How many cut points a number is past if its first 64 bits equal those of a cut point."""
    bits = _WORD
    while number in (table := cuts(bits)):
        number = number << _WORD | int(rng.words(1)[0])
        bits += _WORD
    return sum(cut < number for cut in table)


@lru_cache(maxsize=64)
def _laplace_cuts(epsilon: float, sensitivity: float, bits: int) -> tuple[int, ...]:
    """P(noise <= n) for n = -255 … 254, of Laplace noise rounded to integers and clipped to ±255."""
    with localcontext(_precise(bits)):
        rate = Decimal(epsilon) / Decimal(sensitivity)
        tails = ((-rate * (2 * n - 1) / 2).exp() / 2 for n in range(LARGEST, 0, -1))
        lower = [int(tail * (1 << bits)) for tail in tails]
    # By symmetry, not from 1 - tail, which would lose significant digits.
    return (*lower, *((1 << bits) - 1 - cut for cut in reversed(lower)))


@lru_cache(maxsize=64)
def _replaced_cuts(epsilon: float, size: int, bits: int) -> tuple[int, ...]:
    """P(a label is replaced by one drawn from all k): k / (e^ε + k - 1)."""
    with localcontext(_precise(bits)):
        small = (-Decimal(epsilon)).exp()
        return (int(size * small / (1 + (size - 1) * small) * (1 << bits)),)


def _precise(bits: int) -> Context:
    """Decimal arithmetic with room for `bits` bits, guard digits, and the smallest tails."""
    digits = min(math.ceil(bits * math.log10(2)) + _GUARD_DIGITS, MAX_PREC)
    return Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
