"""The kinds of columns: each is declared, fitted to a column without labels, and then encodes bytes.

Numbers are in `scaled.py`. What is fitted is a pydantic model, as a saved encoder holds it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, field_validator

from maskedlark.errors import NotDeclared
from maskedlark.features.column import Column, Value, text, texts

Rows = NDArray[np.uint8]
ON = 255
MAX_BYTES = 1 << 12
"""Bytes of one encoded column."""
SALT = "maskedlark"
MAX_SALT = 64
"""BLAKE2b's longest key, in bytes."""
_PERSON = b"maskedlark hash1"
"""16 bytes that separate these hashes from any other use of BLAKE2b."""
TEXTS = {"true": True, "yes": True, "t": True, "y": True, "1": True} | {
    "false": False, "no": False, "f": False, "n": False, "0": False,
}  # fmt: skip
NOT_BOOLEAN = "neither yes nor no (true/false, yes/no, t/f, y/n, 1/0); clean it, or declare OneHot()"

Text = InstanceOf[str]
"""Any text: pydantic's str refuses those read with errors="surrogateescape"."""


class Fitted(BaseModel, ABC):
    """One column's encoding, public and final."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    """Its name in a saved encoder."""
    name: Text
    """The column's."""
    indicator: bool
    """Whether a last byte marks missing values."""

    def own_names(self) -> list[str]:
        """What its bytes stand for, without the indicator; by default the column's own name."""
        return [self.name]

    @property
    @abstractmethod
    def how(self) -> str:
        """How a value becomes bytes, in words."""

    @abstractmethod
    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """The bytes of every distinct value (v, w), without the indicator, and which are missing."""

    def names(self) -> list[str]:
        """What its bytes stand for."""
        return self.own_names() + [f"{self.name} is missing"] * self.indicator

    def encode(self, column: Column) -> Rows:
        """A column as bytes: (n, w). Run by the ad server, for training and for serving alike."""
        rows, absent = self.encode_distinct(column)
        if self.indicator:
            rows = np.concatenate([rows, absent[:, None] * np.uint8(ON)], axis=1)
        return rows[column.places]


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """What a user declares about a column before it is fitted."""

    indicator: bool | None = None
    """Whether a byte marks missing values; None: if the fitted column has any."""

    def __post_init__(self) -> None:
        if self.indicator is not None and not isinstance(self.indicator, bool):
            raise NotDeclared("an indicator is True, False, or None for: where values are missing")

    @abstractmethod
    def fit(self, column: Column, least: int) -> Fitted:
        """Fit to a column; nothing public may stand for fewer than `least` rows."""

    def wants_indicator(self, absent: NDArray[np.bool_]) -> bool:
        """As declared, or if anything is missing."""
        return bool(absent.any()) if self.indicator is None else self.indicator


def check_whole(value: object, low: int, high: int, what: str) -> None:
    """Refuse what is not an integer in its range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise NotDeclared(f"{what} is a whole number from {low} to {high}, not {value!r}")


def _spread(present: NDArray[np.intp], absent: NDArray[np.bool_], if_absent: int, width: int) -> Rows:
    """One-hot rows of distinct values; a missing one is on at `if_absent` (below 0: nowhere)."""
    places = np.full(len(absent), if_absent, np.intp)
    places[~absent] = present
    hot: NDArray[np.bool_] = places[:, None] == np.arange(width)
    return hot * np.uint8(ON)


@dataclass(frozen=True)
class Boolean(Kind):
    """Yes or no as one byte: 255 for yes, 0 for no and for missing."""

    def fit(self, column: Column, least: int) -> "BooleanColumn":  # noqa: ARG002 - it shows nothing
        """Fits only the indicator; refuses non-booleans now, not at serving."""
        column.present(boolean, NOT_BOOLEAN)
        return BooleanColumn(name=column.name, indicator=self.wants_indicator(column.absent))


class BooleanColumn(Fitted):
    """Yes or no."""

    kind: Literal["boolean"] = "boolean"

    @property
    def how(self) -> str:
        """Yes or no."""
        return "yes or no"

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """One byte each."""
        rows = np.zeros((len(column.values), 1), np.uint8)
        rows[~column.absent, 0] = np.array(column.present(boolean, NOT_BOOLEAN), bool) * np.uint8(ON)
        return rows, column.absent


def boolean(value: Value) -> bool:
    """True or false, as booleans, 0 and 1, and the usual texts."""
    answer = TEXTS.get(text(value).strip().casefold())
    if answer is None:
        raise ValueError
    return answer


@dataclass(frozen=True)
class OneHot(Kind):
    """One byte per category, for the `most` most frequent with at least `least` rows; the rest are other.

    The categories are public, so a rare one would reveal something about the few who have it.
    """

    most: int = 32
    least: int | None = None
    """None: the encoder's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.most, 1, MAX_BYTES, "the most categories of a column")
        if self.least is not None:
            check_whole(self.least, 1, 1 << 31, "the least rows of a category")

    def fit(self, column: Column, least: int) -> "OneHotColumn":
        """The most frequent first, ties by text, so that the order of rows does not matter."""
        count: Counter[str] = Counter()
        for category, rows in zip(texts(column), column.counts[~column.absent].tolist(), strict=True):
            count[category] += rows
        ordered = sorted(count.items(), key=lambda item: (-item[1], item[0]))
        floor = least if self.least is None else self.least
        known = tuple(category for category, rows in ordered[: self.most] if rows >= floor)
        return OneHotColumn(name=column.name, indicator=self.wants_indicator(column.absent), categories=known)


class OneHotColumn(Fitted):
    """Known categories. Every row has exactly one byte on, counting the indicator."""

    kind: Literal["one-hot"] = "one-hot"
    # Not strict: JSON has lists, and no tuples.
    categories: tuple[Text, ...] = Field(strict=False, max_length=MAX_BYTES)

    @field_validator("categories")
    @classmethod
    def _different(cls, categories: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(categories)) != len(categories):
            raise ValueError("a category is named twice")
        return categories

    @property
    def how(self) -> str:
        """How many categories."""
        return f"{len(self.categories)} categories, and all others"

    def own_names(self) -> list[str]:
        """One per category, then the others'."""
        return [*(f"{self.name} = {category}" for category in self.categories), f"{self.name} is other"]

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """Missing values count as other if there is no indicator."""
        other = len(self.categories)
        place = {category: place for place, category in enumerate(self.categories)}
        present = np.array([place.get(category, other) for category in texts(column)], np.intp)
        return _spread(present, column.absent, -1 if self.indicator else other, other + 1), column.absent


@dataclass(frozen=True)
class Hashed(Kind):
    """A category's bucket by BLAKE2b, keyed with a declared salt: stable across runs, machines, releases.

    Any number of categories, without a public list of them. The salt is public and hides nothing: anyone can
    check a guessed category's bucket. Another salt makes other categories collide.
    """

    buckets: int
    salt: str = SALT

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.buckets, 1, MAX_BYTES, "the number of buckets")
        if not _is_salt(self.salt):
            raise NotDeclared(f"a salt is a text of at most {MAX_SALT} bytes; declare a shorter one")

    def fit(self, column: Column, least: int) -> "HashedColumn":  # noqa: ARG002 - it shows no category
        """Fits only the indicator; refuses what cannot be hashed now, not at serving."""
        texts(column)
        indicator = self.wants_indicator(column.absent)
        return HashedColumn(name=column.name, indicator=indicator, buckets=self.buckets, salt=self.salt)


def _is_salt(salt: object) -> bool:
    return isinstance(salt, str) and len(_octets(salt)) <= MAX_SALT


class HashedColumn(Fitted):
    """Buckets. A missing value is in none."""

    kind: Literal["hashed"] = "hashed"
    buckets: Annotated[int, Field(ge=1, le=MAX_BYTES)]
    salt: Text

    @field_validator("salt")
    @classmethod
    def _short(cls, salt: str) -> str:
        if not _is_salt(salt):
            raise ValueError(f"a salt has at most {MAX_SALT} bytes")
        return salt

    @property
    def how(self) -> str:
        """How many buckets."""
        return f"categories, hashed into {self.buckets} buckets"

    def own_names(self) -> list[str]:
        """One per bucket."""
        return [f"{self.name} in bucket {bucket} of {self.buckets}" for bucket in range(self.buckets)]

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """One hash per distinct category."""
        present = np.array(list(map(self.bucket, texts(column))), np.intp)
        return _spread(present, column.absent, -1, self.buckets), column.absent

    def bucket(self, category: str) -> int:
        """The hash covers the column's name, length first, so that columns collide differently."""
        name = _octets(self.name)
        data = len(name).to_bytes(4, "big") + name + _octets(category)
        digest = blake2b(data, digest_size=8, key=_octets(self.salt), person=_PERSON).digest()
        return int.from_bytes(digest, "big") % self.buckets


def _octets(text: str) -> bytes:
    # Texts read with errors="surrogateescape" have a hash too.
    return text.encode("utf-8", "surrogatepass")
