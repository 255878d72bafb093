"""An ad server's public models and values: browsers make reports by them, helpers check reports by them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core import field, local_dp
from maskedlark.core.candidates import ALL, CandidatePolicy
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace, integers
from maskedlark.core.local_dp import Declared, RandomisedResponse
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

MAX_NAME = 64
"""Bytes of a tag, of a key's name, of a value's name."""
MAX_NAMES = 32
"""Keys, values, or labels of a model."""
MAX_FEATURES = 1 << 16
"""Bytes of a record's open columns."""
MAX_COLUMNS = 64
MAX_SIZE = (1 << 32) - 1
"""The most categories of a column."""
MAX_BAG = 1 << 10
INDEX_BYTES = 4
MAX_POINTS = 1 << 10
"""Numbers of one record that are checked: a proof has two more, and what it may miss grows with them."""
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


def _check_number(what: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise NotDeclared(f"{what} is from 1 to {most}, not {number}")


@dataclass(frozen=True)
class Bytes(Declared):
    """Byte features: the engine's inputs."""

    count: int
    kind: Literal["bytes"] = "bytes"

    def __post_init__(self) -> None:
        _check_number("the count of byte features", self.count, MAX_FEATURES)

    @property
    def width(self) -> int:
        """Its bytes on the wire."""
        return self.count


@dataclass(frozen=True)
class Category(Declared):
    """A category, as an index below `size`."""

    size: int
    kind: Literal["category"] = "category"
    length: ClassVar = 1

    def __post_init__(self) -> None:
        _check_number("the size of a category", self.size, MAX_SIZE)

    @property
    def width(self) -> int:
        """Its bytes on the wire."""
        return INDEX_BYTES


@dataclass(frozen=True)
class Bag(Declared):
    """Always `length` categories, as indices below `size`."""

    size: int
    length: int
    kind: Literal["bag"] = "bag"

    def __post_init__(self) -> None:
        _check_number("the size of a bag's categories", self.size, MAX_SIZE)
        _check_number("the length of a bag", self.length, MAX_BAG)

    @property
    def width(self) -> int:
        """Its bytes on the wire."""
        return INDEX_BYTES * self.length


Column = Bytes | Category | Bag
"""A typed open column of a model's records."""


class Provable(ABC):
    """A measure or a model: what can be proved of its records if they are checked (`core/validity.py`)."""

    checked: bool

    @abstractmethod
    def secrets(self) -> int:
        """How many secret numbers a record carries, besides the proof."""

    @abstractmethod
    def points(self) -> int:
        """How many numbers have to be 0 or 1."""

    @abstractmethod
    def bits(self, secrets: FieldArray) -> FieldArray:
        """What has to be 0 or 1: (n, points). Linear: browsers run it on secrets, helpers on shares."""

    @abstractmethod
    def hold(self, shares: FieldArray, place: int) -> FieldArray:
        """What a helper stores of its shares. Linear too."""

    def proof(self) -> int:
        """How many numbers prove that: one that is random, and those of a polynomial of twice the degree."""
        return self.points() + 2 if self.checked else 0

    def carried(self) -> int:
        """How many numbers are shared for a record."""
        return self.secrets() + self.proof()

    def _check_points(self) -> None:
        if self.checked and self.points() > MAX_POINTS:
            raise NotDeclared(
                f"checks cover at most {MAX_POINTS} numbers per record, not {self.points()}: show fewer "
                "candidates, or declare fewer labels or values of a smaller range"
            )


@dataclass(frozen=True)
class Model(Provable):
    """A model to train: its tag, open columns, label spaces, and how candidates are shown."""

    purpose: ClassVar = Purpose.TRAIN
    tag: str
    columns: tuple[Column, ...]
    """In their order on the wire."""
    labels: tuple[LabelSpace, ...] = (LabelSpace.binary(),)
    policy: CandidatePolicy = ALL
    checked: bool = False
    """Whether reports prove that every label is one-hot."""

    def __post_init__(self) -> None:
        _check_names("tags", [self.tag])
        if len(self.columns) > MAX_COLUMNS or self.width > MAX_FEATURES:
            raise NotDeclared(
                f"a model has at most {MAX_COLUMNS} columns of {MAX_FEATURES} bytes together, not "
                f"{len(self.columns)} of {self.width}"
            )
        if sum(isinstance(column, Bytes) for column in self.columns) > 1:
            raise NotDeclared(f"model {self.tag} has two columns of bytes: make them one")
        if not 1 <= len(self.labels) <= MAX_NAMES:
            raise NotDeclared(f"a model has 1 to {MAX_NAMES} labels, not {len(self.labels)}")
        self._check_points()

    @property
    def width(self) -> int:
        """The bytes of a record's open columns on the wire."""
        return sum(column.width for column in self.columns)

    @property
    def features(self) -> int:
        """The number of byte features."""
        return sum(column.count for column in self.columns if isinstance(column, Bytes))

    @property
    def indexed(self) -> tuple[Category | Bag, ...]:
        """The columns of indices."""
        return tuple(column for column in self.columns if not isinstance(column, Bytes))

    @property
    def byte_span(self) -> slice:
        """Where the byte features are in the encoded columns; empty if there are none."""
        before = 0
        for column in self.columns:
            if isinstance(column, Bytes):
                return slice(before, before + column.count)
            before += column.width
        return slice(0, 0)

    def secrets(self) -> int:
        """How many masks a record has."""
        return sum(map(self.policy.count, self.labels))

    def points(self) -> int:
        """Every mask, and every label's sum of them."""
        return self.secrets() + len(self.labels)

    def bits(self, secrets: FieldArray) -> FieldArray:
        """For every label its masks, then their sum, so that at most one is hot."""
        ends = np.cumsum([self.policy.count(space) for space in self.labels])
        labels = np.split(secrets, ends[:-1], axis=1)
        return np.concatenate(
            [part for own in labels for part in (own, field.total(own, 1)[:, None])], axis=1
        )

    def hold(self, shares: FieldArray, place: int) -> FieldArray:  # noqa: ARG002 - as of a measure
        """The masks as they are."""
        return shares[:, : self.secrets()]

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

    @property
    def least(self) -> int:
        """The smallest value of a record: of one without conversion, it is 0."""
        return min(self.low, 0)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """What each bit of a checked value adds to `least`: 1, 2, 4, …, and a last one that reaches `high`.

        So no bits are outside the range. Some values have two forms, which nobody sees.
        """
        most = max(self.high, 0) - self.least
        powers = [1 << place for place in range(most.bit_length() - 1)]
        return (*powers, most - sum(powers)) if most else ()

    def lift(self, values: ArrayLike, real: NDArray[np.bool_]) -> FieldArray:
        """Values as field elements, 0 for a fake record. Refuses what was not declared."""
        given = integers(values, "value")
        if given.size and not min(self.low, 0) <= given.min() <= given.max() <= max(self.high, 0):
            raise NotDeclared(f"a value of {self.name} is outside the declared {self.low} … {self.high}")
        return field.from_signed(np.where(real, given, 0))

    def bits(self, lifted: FieldArray) -> FieldArray:
        """The bits of values, for `weights`: (n, bits). A fake has those of 0."""
        if not self.weights:
            return np.zeros((len(lifted), 0), np.int64)
        above, powers = field.to_signed(lifted) - self.least, len(self.weights) - 1
        last = above >> powers  # 0 or 1
        rest = above - last * self.weights[-1]
        return np.concatenate([rest[:, None] >> np.arange(powers) & 1, last[:, None]], axis=1)


@dataclass(frozen=True)
class Measure(Provable):
    """What is summed and how it is grouped: conversion values and aggregation keys (section 3.3)."""

    purpose: ClassVar = Purpose.AGGREGATE
    keys: tuple[str, ...]
    values: tuple[Value, ...]
    checked: bool = False
    """Whether reports carry values as bits, and prove that they are."""

    def __post_init__(self) -> None:
        _check_names("keys", self.keys)
        _check_names("values", self.names)
        self._check_points()

    @property
    def names(self) -> tuple[str, ...]:
        """The values' names, in the order of their shares."""
        return tuple(value.name for value in self.values)

    def secrets(self) -> int:
        """How many secret numbers a record carries: the count (1 real, 0 fake), then values or their bits."""
        return self.points() if self.checked else self.held()

    def points(self) -> int:
        """The count, and every bit of every value."""
        return 1 + sum(len(value.weights) for value in self.values)

    def held(self) -> int:
        """How many numbers a helper stores per record: the count, then every value."""
        return 1 + len(self.values)

    def lift(self, values: Sequence[ArrayLike], real: NDArray[np.bool_]) -> FieldArray:
        """The secret of every record, count first: (n, secrets). Run by the browser."""
        if len(values) != len(self.values):
            raise NotDeclared(f"{len(self.values)} values are declared, not {len(values)}")
        _check_columns(values, real, "value")
        columns = [value.lift(column, real) for value, column in zip(self.values, values, strict=True)]
        if not self.checked:
            return np.stack([real.astype(np.int64), *columns], axis=1)
        bits = [value.bits(column) for value, column in zip(self.values, columns, strict=True)]
        return np.concatenate([real.astype(np.int64)[:, None], *bits], axis=1)

    def bits(self, secrets: FieldArray) -> FieldArray:
        """All that a checked record carries."""
        return secrets

    def hold(self, shares: FieldArray, place: int) -> FieldArray:
        """What a helper stores, count first: (n, held). Values add up as they would without checks.

        Helper 0 adds the least value, to every record alike: who is fake, it cannot know.
        """
        if not self.checked:
            return shares[:, : self.held()]
        columns, start = [shares[:, 0]], 1
        for value in self.values:
            own = shares[:, start : start + len(value.weights)]
            start += len(value.weights)
            weighted = field.total(field.multiply(own, np.array(value.weights, np.int64)), 1)
            least = np.array(value.least if place == 0 else 0)
            columns.append(field.add(weighted, field.from_signed(least)))
        return np.stack(columns, axis=1)
