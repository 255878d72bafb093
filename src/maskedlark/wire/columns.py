"""The open columns of a record: what every helper sees of it, the same at each.

Encoded apart from the secret, so that the public part can bind them by a salted hash and no two helpers can
be fed different ones.
"""

import hashlib
from dataclasses import dataclass

from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared, OutOfRange, WrongLength, WrongType
from maskedlark.wire import codec

SALT_BYTES = 16
HASH_BYTES = 32
MOST_NAME = 64
MOST_KEYS = 32
MOST_KEY_TEXT = 64
MOST_KEY_NUMBER = (1 << 63) - 1
MOST_FEATURES = 1 << 16
_DOMAIN = b"maskedlark v1 columns"

Key = str | int
"""The value of an aggregation key: a text, or a number that queries may take ranges of."""


@dataclass(frozen=True)
class AggregateColumns:
    """Keys to query and group by; the names of the values, whose shares follow the count's."""

    keys: dict[str, Key]
    values: tuple[str, ...]

    def encode(self) -> bytes:
        """Run by the browser."""
        return codec.encode({"keys": self.keys, "values": list(self.values)})

    def secrets(self) -> int:
        """How many shares the payload carries: count first."""
        return 1 + len(self.values)


@dataclass(frozen=True)
class TrainColumns:
    """A model's tag, its byte features, and the candidates of each of its labels."""

    tag: str
    features: bytes
    candidates: tuple[tuple[int, ...], ...]

    def encode(self) -> bytes:
        """Run by the browser."""
        candidates = [list(labels) for labels in self.candidates]
        return codec.encode({"tag": self.tag, "features": self.features, "candidates": candidates})

    def secrets(self) -> int:
        """How many masks the payload carries."""
        return sum(map(len, self.candidates))


Columns = AggregateColumns | TrainColumns


def decode(data: bytes, purpose: Purpose) -> Columns:
    """Run by the helper; `purpose` is the public part's."""
    return _aggregate(data) if purpose is Purpose.AGGREGATE else _train(data)


def _aggregate(data: bytes) -> AggregateColumns:
    item = codec.fields(codec.decode(data), "keys", "values")
    keys, values = codec.typed(item["keys"], dict), codec.typed(item["values"], list)
    if len(keys) > MOST_KEYS or len(values) > MOST_KEYS:
        raise WrongLength(f"a record has at most {MOST_KEYS} keys and as many values")
    for name, key in keys.items():
        codec.text(name, MOST_NAME)
        _check_key(key)
    return AggregateColumns(keys, tuple(codec.text(name, MOST_NAME) for name in values))


def _check_key(key: codec.Item) -> None:
    if type(key) is str:
        if len(key) > MOST_KEY_TEXT:
            raise WrongLength(f"a key is a text of at most {MOST_KEY_TEXT} characters")
    elif type(key) is not int:
        raise WrongType("a key is a text or a whole number")
    elif abs(key) > MOST_KEY_NUMBER:
        raise OutOfRange("a key that is a number has at most 63 bits")


def _train(data: bytes) -> TrainColumns:
    item = codec.fields(codec.decode(data), "tag", "features", "candidates")
    features = codec.typed(item["features"], bytes)
    if len(features) > MOST_FEATURES:
        raise WrongLength(f"a record has at most {MOST_FEATURES} features")
    labels = codec.typed(item["candidates"], list)
    return TrainColumns(codec.text(item["tag"], MOST_NAME), features, tuple(map(_candidates, labels)))


def _candidates(item: codec.Item) -> tuple[int, ...]:
    labels = codec.typed(item, list)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise WrongLength("a label has at least two candidates, all different")
    if any(type(label) is not int for label in labels):
        raise WrongType("a candidate label is a whole number")
    return tuple(labels)


def digest(columns: bytes, salt: bytes, purpose: Purpose) -> bytes:
    """What the public part shows of the columns. The salt keeps the ad server from guessing them."""
    return hashlib.sha256(_DOMAIN + bytes([len(purpose)]) + purpose.encode() + salt + columns).digest()


def largest(declared: Measure | Model) -> Columns:
    """The longest columns that a declaration allows: they give all its reports their one size."""
    if isinstance(declared, Measure):
        names = tuple(value.name for value in declared.values)
        return AggregateColumns(dict.fromkeys(declared.keys, "\U0010ffff" * MOST_KEY_TEXT), names)
    longest = [max(space.values, key=lambda label: len(codec.encode(label))) for space in declared.labels]
    counts = [declared.policy.count(space) for space in declared.labels]
    candidates = tuple((label,) * count for label, count in zip(longest, counts, strict=True))
    return TrainColumns(declared.tag, bytes(declared.features), candidates)
