"""Payloads: what one helper finds in a report once it is opened. Made by browsers, read by helpers.

    payload = salt (16 bytes), open columns, secret, zeros         one size for a purpose, document and helper
    secret  = field elements of 8 bytes for helper 0, a 16-byte seed for the others

The secret's numbers are those of the declaration, and then, if helpers check reports, the proof that they are
valid (`core/validity.py`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from maskedlark.core import field, sharing
from maskedlark.core.candidates import All
from maskedlark.core.declared import INDEX_BYTES, Bag, Bytes, Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import NotDeclared, NotInField, WrongLength
from maskedlark.wire import columns
from maskedlark.wire.columns import ABSENT, CANDIDATE_BYTES, SALT_BYTES, Key
from maskedlark.wire.errors import BadPadding, NotAsDeclared, WrongColumnHash

MAX_SIZE = 1 << 17
MODEL = SALT_BYTES
"""Where a payload to train states its model."""


class RecordLayout(NamedTuple):
    """Where columns and secret are in the payloads of one declaration."""

    declared: Measure | Model
    columns: slice
    secret: slice


class Payload(NamedTuple):
    """One record: its keys, or the encoded columns and candidates of its model; and its share or seed."""

    model: str | None
    keys: tuple[Key, ...]
    columns: bytes
    candidates: tuple[tuple[int, ...], ...]
    secret: bytes

    def __repr__(self) -> str:
        return f"Payload({len(self.secret)} secret bytes)"


@dataclass(frozen=True)
class PayloadLayout:
    """The layouts of all payloads of one purpose under one document, at one helper."""

    declared: tuple[Measure | Model, ...]
    """One measure, or the models of the document in its order."""
    place: int

    @cached_property
    def records(self) -> tuple[RecordLayout, ...]:
        """The layout of every declaration."""
        return tuple(map(self._record, self.declared))

    @cached_property
    def size(self) -> int:
        """Of every payload: that of the largest record declared."""
        largest: int = max(record.secret.stop for record in self.records)
        if largest > MAX_SIZE:
            raise NotDeclared(
                f"a record would take {largest} bytes, more than {MAX_SIZE}: show fewer candidates"
            )
        return largest

    @property
    def purpose(self) -> Purpose:
        """What the reports are for."""
        return self.declared[0].purpose

    def rows(self, place: int, salted: ByteRows, secrets: ByteRows) -> ByteRows:
        """Payloads of one declaration, from salts and columns and what the secrets carry. Run by browsers."""
        record = self.records[place]
        rows = np.zeros((len(salted), self.size), np.uint8)
        rows[:, : record.columns.stop] = salted
        rows[:, record.secret] = secrets
        return rows

    def decode(self, data: bytes, column_hash: bytes) -> Payload:
        """One payload, as declared and bound by the public part: the slow twin of `decrypt.py`."""
        if len(data) != self.size:
            raise WrongLength(f"a payload has {self.size} bytes here, not {len(data)}")
        place = 0 if self.purpose is Purpose.AGGREGATE else data[MODEL]
        if place >= len(self.records):
            raise NotAsDeclared("a record of a model that the document does not declare")
        record = self.records[place]
        if any(data[record.secret.stop :]):
            raise BadPadding("padding that is not all zero")
        if columns.digest(data[: record.columns.stop], self.purpose) != column_hash:
            raise WrongColumnHash("the open columns are not those that the public part binds")
        shown, secret = data[record.columns], data[record.secret]
        if self.place == 0:
            _check_field(secret)
        if isinstance(record.declared, Measure):
            return Payload(None, columns.decode_keys(shown), b"", (), secret)
        return _trained(record.declared, shown[1:], secret)

    def _record(self, declared: Measure | Model) -> RecordLayout:
        end = SALT_BYTES + columns.width(declared)
        secret = sharing.SEED_BYTES if self.place else field.BYTES * declared.carried()
        return RecordLayout(declared, slice(SALT_BYTES, end), slice(end, end + secret))


def _trained(model: Model, shown: bytes, secret: bytes) -> Payload:
    """A record of a model, from everything after the model's place."""
    end = model.width
    _check_indices(model, shown)
    candidates = tuple(space.values for space in model.labels)
    if not isinstance(model.policy, All):
        candidates = _shown(model, shown[end:])
    return Payload(model.tag, (), shown[:end], candidates, secret)


def _check_indices(model: Model, data: bytes) -> None:
    """Refuse a category or a bag that is not as declared. Not with `columns.typed`, whose twin this is."""
    for column in model.columns:
        own, data = data[: column.width], data[column.width :]
        if isinstance(column, Bytes):
            continue
        entries = [int.from_bytes(each, "big") for each in sharing.cut(own, INDEX_BYTES)]
        absent = {ABSENT} if isinstance(column, Bag) else set()
        if sorted(entries) != entries or any(each >= column.size for each in set(entries) - absent):
            raise NotAsDeclared("a category or a bag outside what the model declares")


def _shown(model: Model, data: bytes) -> tuple[tuple[int, ...], ...]:
    """The candidates of every label."""
    places = [int.from_bytes(each, "big") for each in sharing.cut(data, CANDIDATE_BYTES)]
    shown = []
    for space in model.labels:
        own, places = places[: model.policy.count(space)], places[model.policy.count(space) :]
        values = tuple(space.values[place] for place in own if place < len(space))
        if not model.policy.allows(space, values):
            raise NotAsDeclared("candidates that the model's policy does not allow")
        shown.append(values)
    return tuple(shown)


def _check_field(secret: bytes) -> None:
    if any(int.from_bytes(each, "little") >= field.P for each in sharing.cut(secret, field.BYTES)):
        raise NotInField("a share is p or more")
