"""The open columns of a record, which every helper sees. Made by browsers, decoded by helpers.

Encoded apart from the secret: the public part binds them by a salted hash, so all helpers get the same.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from maskedlark.core import field
from maskedlark.core.declared import MAX_FEATURES, MAX_NAME, MAX_NAMES, Measure, Model
from maskedlark.core.labels import MAX_LABELS
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotAsDeclared, OutOfRange, WrongLength, WrongType
from maskedlark.wire import codec
from maskedlark.wire.codec import Fields, Reader

SALT_BYTES = 16
HASH_BYTES = 32
MAX_KEY_TEXT = 64
MAX_KEY_NUMBER = (1 << 63) - 1
_MAX_REMEMBERED = 4096
_DOMAINS = {
    purpose: b"maskedlark v1 columns" + bytes([len(purpose)]) + purpose.encode() for purpose in Purpose
}
_AGGREGATE = Fields("keys", "values")
_TRAIN = Fields("tag", "features", "candidates")

Key = str | int
"""The value of an aggregation key: a text, or an integer that queries may filter by range."""


class AggregateColumns(NamedTuple):
    """Keys to filter and group by; the names of the values, whose shares follow the count's."""

    keys: Mapping[str, Key]
    values: tuple[str, ...]

    def encode(self) -> bytes:
        """Run by the browser."""
        keys = {
            name: codec.text(key) if isinstance(key, str) else codec.number(key)
            for name, key in self.keys.items()
        }
        return _AGGREGATE.write(codec.mapped(keys), codec.listed([codec.text(name) for name in self.values]))

    def secrets(self) -> int:
        """How many shares the payload carries: count first."""
        return 1 + len(self.values)


class TrainColumns(NamedTuple):
    """A model's tag, its byte features, and the candidates of each of its labels."""

    tag: str
    features: bytes
    candidates: tuple[tuple[int, ...], ...]

    def encode(self) -> bytes:
        """Run by the browser."""
        shown = _encode_candidates(self.candidates)
        return _TRAIN.write(codec.text(self.tag), codec.octets(self.features), shown)

    def secrets(self) -> int:
        """How many masks the payload carries."""
        return sum(map(len, self.candidates))


@lru_cache(maxsize=1024)
def _encode_candidates(candidates: tuple[tuple[int, ...], ...]) -> bytes:
    """Cached: most records show the same candidates."""
    return codec.listed([codec.listed([codec.number(label) for label in labels]) for labels in candidates])


Columns = AggregateColumns | TrainColumns


def decode(data: bytes, purpose: Purpose) -> Columns:
    """Run by the helper; `purpose` is the public part's."""
    reader = Reader(data)
    decoded = _aggregate(reader) if purpose is Purpose.AGGREGATE else _train(reader)
    reader.end()
    return decoded


def _aggregate(reader: Reader) -> AggregateColumns:
    keys, values = reader.map(_AGGREGATE)
    decoded = reader.item(keys)
    if type(decoded) is not dict:
        raise WrongType("the keys of a record are a map")
    check_keys(decoded)
    names = tuple([reader.text(b"", MAX_NAME) for _ in reader.items(values, 0, MAX_NAMES)])
    return AggregateColumns(decoded, names)


def check_keys(keys: Mapping[str, codec.Item]) -> None:
    """Refuse invalid keys. Run by browsers before they seal, and by helpers."""
    if len(keys) > MAX_NAMES:
        raise WrongLength(f"a record has at most {MAX_NAMES} keys")
    for name, key in keys.items():
        if not 1 <= len(name.encode()) <= MAX_NAME:
            raise WrongLength(f"the name of a key has 1 to {MAX_NAME} bytes")
        if type(key) not in (str, int):
            raise WrongType("a key is a text or a whole number")
        if isinstance(key, str) and len(key.encode()) > MAX_KEY_TEXT:
            raise WrongLength(f"a key is a text of at most {MAX_KEY_TEXT} bytes")
        if isinstance(key, int) and abs(key) > MAX_KEY_NUMBER:
            raise OutOfRange("a key that is a number has at most 63 bits")


def _train(reader: Reader) -> TrainColumns:
    tag, features, candidates = reader.map(_TRAIN)
    decoded_tag, decoded_features = reader.text(tag, MAX_NAME), reader.octets(features)
    if len(decoded_features) > MAX_FEATURES:
        raise WrongLength(f"a record has at most {MAX_FEATURES} features")
    rest = reader.rest(candidates)
    # Most records show the same few candidates, so short ones are cached; long ones would fill memory.
    labels = _remembered_candidates(rest) if len(rest) <= _MAX_REMEMBERED else _candidates(rest)
    return TrainColumns(decoded_tag, decoded_features, labels)


def _candidates(data: bytes) -> tuple[tuple[int, ...], ...]:
    """The candidates of every label."""
    reader = Reader(data)
    labels = tuple([_shown(reader) for _ in reader.items(b"", 1, MAX_NAMES)])
    reader.end()
    return labels


_remembered_candidates = lru_cache(maxsize=1024)(_candidates)


def _shown(reader: Reader) -> tuple[int, ...]:
    labels = tuple([reader.integer(field.HALF) for _ in reader.items(b"", 2, MAX_LABELS)])
    if len(set(labels)) < len(labels):
        raise WrongLength("the candidates of a label are all different")
    return labels


def digest(columns: bytes, salt: bytes, purpose: Purpose) -> bytes:
    """The column hash in the public part. The salt keeps the ad server from guessing the columns."""
    return hashlib.sha256(_DOMAINS[purpose] + salt + columns).digest()


def largest(declared: Measure | Model) -> Columns:
    """The longest columns that a declaration allows: they set the size of all its reports."""
    if isinstance(declared, Measure):
        names = tuple(value.name for value in declared.values)
        return AggregateColumns(dict.fromkeys(declared.keys, "x" * MAX_KEY_TEXT), names)
    longest = [max(space.values, key=lambda label: len(codec.number(label))) for space in declared.labels]
    counts = [declared.policy.count(space) for space in declared.labels]
    candidates = tuple((label,) * count for label, count in zip(longest, counts, strict=True))
    return TrainColumns(declared.tag, bytes(declared.features), candidates)


Declared = Measure | Model | Mapping[str, Model]
"""What the reports of a dataset may be for: one measure, one model, or several models by tag."""


def models_of(declared: Declared) -> dict[str, Model]:
    """The declared models by tag; empty for a measure."""
    if isinstance(declared, Measure):
        return {}
    models = [declared] if isinstance(declared, Model) else declared.values()
    return {model.tag: model for model in models}


class Shape:
    """The shape of open columns under a declaration. Helpers check every record against it."""

    def __init__(self, declared: Declared) -> None:
        self._measure = declared if isinstance(declared, Measure) else None
        self.models = models_of(declared)
        self._fitting: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()

    def check(self, columns: Columns) -> None:
        """Refuse a record of another shape."""
        fits = self._measured(columns) if isinstance(columns, AggregateColumns) else self._trained(columns)
        if not fits:
            raise NotAsDeclared("open columns of another tag or shape than declared")

    def _measured(self, columns: AggregateColumns) -> bool:
        of = self._measure
        return of is not None and columns.keys.keys() == set(of.keys) and columns.values == of.names

    def _trained(self, columns: TrainColumns) -> bool:
        model = self.models.get(columns.tag)
        if model is None or len(columns.features) != model.features:
            return False
        shown = (columns.tag, columns.candidates)
        if shown in self._fitting:
            return True
        spaces, policy = model.labels, model.policy
        fits = len(columns.candidates) == len(spaces) and all(map(policy.allows, spaces, columns.candidates))
        if fits and len(self._fitting) < _MAX_REMEMBERED:
            self._fitting.add(shown)
        return fits
