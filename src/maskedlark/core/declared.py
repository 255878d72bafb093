"""An ad server's public models and values: browsers make reports by them, helpers check reports by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core import field, local_dp
from maskedlark.core.candidates import ALL, CandidatePolicy
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace, integers
from maskedlark.core.local_dp import RandomisedResponse
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

MAX_NAME = 64
"""Bytes of a tag, of a key's name, of a value's name."""
MAX_NAMES = 32
"""Keys, values, or labels of a model."""
MAX_FEATURES = 1 << 16
COUNT = "count"
"""The name of the record count in answers; no value may have it."""


def _check_names(what: str, names: Sequence[str]) -> None:
    if len(names) > MAX_NAMES or len(set(names)) < len(names):
        raise NotDeclared(f"at most {MAX_NAMES} {what} can be declared, all with different names")
    if not all(1 <= len(name.encode()) <= MAX_NAME for name in names):
        raise NotDeclared(f"the name of one of the {what} is not 1 to {MAX_NAME} bytes long")


def _check_columns(columns: Sequence[ArrayLike], real: NDArray[np.bool_], what: str) -> None:
    """Refuse columns of different lengths before anything is computed from them."""
    if np.ndim(real) != 1 or real.dtype != np.bool_:  # A 2 would count twice.
        raise NotDeclared("`real` is an array of one bool per record, False for a fake")
    if any(np.shape(column) != real.shape for column in columns):
        raise NotDeclared(f"every record has one {what}; the columns differ in length")


@dataclass(frozen=True)
class Bytes:
    """Byte features."""

    count: int

    @property
    def width(self) -> int:
        """How many bytes it takes."""
        return self.count


@dataclass(frozen=True)
class Category:
    """One index below `size`."""

    size: int
    length: ClassVar = 1
    width: ClassVar = 4


@dataclass(frozen=True)
class Bag:
    """`length` indices below `size`, fewer of which may be there."""

    size: int
    length: int

    @property
    def width(self) -> int:
        """How many bytes it takes."""
        return 4 * self.length


Column = Bytes | Category | Bag
"""A typed open column of a model's records."""


@dataclass(frozen=True)
class Model:
    """A model to train: its tag, the number of byte features, its label spaces, how candidates are shown."""

    purpose: ClassVar = Purpose.TRAIN
    tag: str
    columns: tuple[Column, ...]
    labels: tuple[LabelSpace, ...] = (LabelSpace.binary(),)
    policy: CandidatePolicy = ALL

    def __post_init__(self) -> None:
        _check_names("tags", [self.tag])
        if not 0 <= self.width() <= MAX_FEATURES:
            raise NotDeclared(f"a model's columns have at most {MAX_FEATURES} bytes, not {self.width()}")
        if not 1 <= len(self.labels) <= MAX_NAMES:
            raise NotDeclared(f"a model has 1 to {MAX_NAMES} labels, not {len(self.labels)}")

    @property
    def features(self) -> int:
        """How many byte features a record has."""
        return sum(column.count for column in self.columns if isinstance(column, Bytes))

    def indexed(self) -> tuple[Category | Bag, ...]:
        """The columns of indices."""
        return tuple(column for column in self.columns if not isinstance(column, Bytes))

    def width(self) -> int:
        """How many bytes the columns of a record take."""
        return sum(column.width for column in self.columns)

    def secrets(self) -> int:
        """How many masks a record has."""
        return sum(self.policy.count(space) for space in self.labels)

    def mask(
        self,
        labels: Sequence[ArrayLike],
        real: NDArray[np.bool_],
        rng: Randomness,
        response: RandomisedResponse | None = None,
    ) -> tuple[list[NDArray[np.int64]], FieldArray]:
        """What users did, a column per label, as shown candidates and the secret one-hot. Run by the browser.

        Labels are quantised, then randomised if a response is declared.
        """
        if len(labels) != len(self.labels):
            raise NotDeclared(f"model {self.tag} declares {len(self.labels)} labels, not {len(labels)}")
        _check_columns(labels, real, "label")
        drawn = []
        for space, column in zip(self.labels, labels, strict=True):
            label = space.quantise(np.where(real, column, 0), rng)
            if response is not None:
                # After quantising, never before: quantising again would move labels between buckets.
                label = local_dp.labels(label, space, response, rng)
            drawn.append(self.policy.draw(space, label, real, rng))
        shown, masks = zip(*drawn, strict=True)
        return list(shown), np.concatenate(masks, axis=1)


@dataclass(frozen=True)
class Value:
    """A conversion value: its name and the range of its integers, which includes 0."""

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.name == COUNT:
            raise NotDeclared(f"{COUNT!r} is the name of the number of records; give the value another")
        if not -field.HALF <= self.low <= self.high <= field.HALF:
            raise NotDeclared(f"value {self.name} needs low <= high, both within (p - 1) / 2")

    def largest(self) -> int:
        """The most that one record can add to a sum, up or down."""
        return max(abs(self.low), abs(self.high))

    def lift(self, values: ArrayLike, real: NDArray[np.bool_]) -> FieldArray:
        """Values as field elements, 0 for a fake record. Refuses what was not declared."""
        given = integers(values, "value")
        if given.size and not min(self.low, 0) <= given.min() <= given.max() <= max(self.high, 0):
            raise NotDeclared(f"a value of {self.name} is outside the declared {self.low} … {self.high}")
        return field.from_signed(np.where(real, given, 0))


@dataclass(frozen=True)
class Measure:
    """What is summed and how it is grouped: conversion values and aggregation keys (section 3.3)."""

    purpose: ClassVar = Purpose.AGGREGATE
    keys: tuple[str, ...]
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        _check_names("keys", self.keys)
        _check_names("values", self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The values' names, in the order of their shares."""
        return tuple(value.name for value in self.values)

    def secrets(self) -> int:
        """How many shared numbers a record has: the count (1 real, 0 fake), then every value."""
        return 1 + len(self.values)

    def lift(self, values: Sequence[ArrayLike], real: NDArray[np.bool_]) -> FieldArray:
        """The secret of every record, count first: (n, secrets). Run by the browser."""
        if len(values) != len(self.values):
            raise NotDeclared(f"{len(self.values)} values are declared, not {len(values)}")
        _check_columns(values, real, "value")
        columns = [value.lift(column, real) for value, column in zip(self.values, values, strict=True)]
        return np.stack([real.astype(np.int64), *columns], axis=1)
