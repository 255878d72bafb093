"""Label spaces and the paper's probabilistic quantisation (section 4.1.1). Run by the browser.

A label is always an integer of a declared, finite space that holds 0, the label of a source that did not
convert. A real-valued label is moved at random to a neighbouring bucket boundary, then to a neighbouring
integer, each time preserving its mean.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core import decimals, field
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

MAX_LABELS = 1 << 16


@dataclass(frozen=True)
class Buckets:
    """`count` evenly spaced buckets over [low, high], whose `count + 1` boundaries are rational numbers."""

    low: int
    high: int
    count: int

    def __post_init__(self) -> None:
        if not all(isinstance(number, int) for number in (self.low, self.high, self.count)):
            raise NotDeclared("bounds and number of buckets are whole numbers; declare labels in other units")
        if not (self.low <= 0 < self.high and 1 <= self.count < MAX_LABELS):
            raise NotDeclared(f"buckets need low <= 0 < high and 1 to {MAX_LABELS - 1} of them, not {self}")
        # A source without conversion has label 0 exactly, as fakes have: it must not be moved at random.
        if self.low * self.count % (self.high - self.low):
            step = (self.high - self.low) // math.gcd(self.low, self.high)
            raise NotDeclared(f"0 has to be a boundary between buckets: use a multiple of {step} buckets")
        if max(abs(self.low), abs(self.high)) > 1 << 31:
            raise NotDeclared("a bucketed label has at most 31 bits; declare it in larger units")

    def integers(self) -> tuple[int, ...]:
        """Every integer that a quantised label can become, ascending."""
        # A boundary is whole + rest / count.
        numerators = (self.low * self.count + (self.high - self.low) * i for i in range(self.count + 1))
        parts = (divmod(numerator, self.count) for numerator in numerators)
        return tuple(sorted({n for whole, rest in parts for n in (whole, whole + (rest > 0))}))

    def quantise(self, labels: ArrayLike, rng: Randomness) -> NDArray[np.int64]:
        """Labels moved to random boundaries, then to random integers; both steps keep the mean exactly."""
        given, denominator = decimals.fractions(labels, "a label")
        if not ((self.low * denominator <= given) & (given <= self.high * denominator)).all():
            raise NotDeclared(f"a label is outside the declared range {self.low} … {self.high}")
        width = self.high - self.low
        index = decimals.divide((given - self.low * denominator) * self.count, width * denominator, rng)
        whole, rest = np.divmod(self.low * self.count + width * index, self.count)
        return whole + (rng.below(self.count, len(whole)) < rest)


@dataclass(frozen=True)
class LabelSpace:
    """All values that one label of a model can take, in fixed order."""

    values: tuple[int, ...]
    buckets: Buckets | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(value, int) for value in self.values):
            raise NotDeclared("the labels of a space are whole numbers; quantise real ones with buckets")
        if list(self.values) != sorted(set(self.values)) or not 2 <= len(self.values) <= MAX_LABELS:
            raise NotDeclared(f"a label space is 2 to {MAX_LABELS} different integers in ascending order")
        if 0 not in self.values:
            raise NotDeclared("a label space holds 0, the label of a source that did not convert; add it")
        if max(-self.values[0], self.values[-1]) > field.HALF:
            raise NotDeclared("a label is at most (p - 1) / 2 in magnitude; declare it in larger units")

    @classmethod
    def binary(cls) -> "LabelSpace":
        """Converted or not."""
        return cls((0, 1))

    @classmethod
    def categorical(cls, classes: int) -> "LabelSpace":
        """One of `classes` classes, of which 0 means: did not convert."""
        return cls(tuple(range(classes)))

    @classmethod
    def integers(cls, low: int, high: int) -> "LabelSpace":
        """Every integer from low to high."""
        return cls(tuple(range(low, high + 1)))

    @classmethod
    def reals(cls, low: int, high: int, buckets: int) -> "LabelSpace":
        """Real numbers from low to high, quantised at random to `buckets` evenly spaced buckets."""
        scale = Buckets(low, high, buckets)
        return cls(scale.integers(), scale)

    @cached_property
    def members(self) -> frozenset[int]:
        """The labels as a set."""
        return frozenset(self.values)

    @property
    def rounding_variance(self) -> float:
        """The most that `quantise` adds to a label's variance, by its two steps."""
        if self.buckets is None:
            return 0.0
        step = (self.buckets.high - self.buckets.low) / self.buckets.count
        return step**2 / 4 + (0.0 if step.is_integer() else 0.25)

    def __len__(self) -> int:
        return len(self.values)

    def quantise(self, labels: ArrayLike, rng: Randomness) -> NDArray[np.int64]:
        """Raw labels as labels of this space. Refuses what was not declared."""
        if self.buckets is None:
            given = integers(labels, "label")
            self.index(given)
            return given
        return self.buckets.quantise(labels, rng)

    def index(self, labels: NDArray[np.int64]) -> NDArray[np.intp]:
        """The labels' positions in the space. Refuses what is not in it."""
        values = np.array(self.values)
        index = np.minimum(np.searchsorted(values, labels), len(values) - 1)
        if (values[index] != labels).any():
            raise NotDeclared("a label is not in its label space")
        return index


def integers(column: ArrayLike, what: str) -> NDArray[np.int64]:
    """A column of integers. Refuses what a silent cast would change."""
    given = np.asarray(column)
    if given.dtype.kind in "bi":
        return given.astype(np.int64)
    if given.dtype.kind not in "uf" or not (np.abs(given) <= field.HALF).all() or (given % 1 != 0).any():
        raise NotDeclared(f"a {what} is not a whole number within (p - 1) / 2")
    return given.astype(np.int64)
