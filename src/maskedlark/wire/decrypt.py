"""Decrypts many parts of reports at once, into columns. Run by a helper on what the ad server sent it.

Stage by stage, not report by report: consecutive HPKE calls find their code in the processor's cache. Parts
and payloads are rows of arrays; only HPKE and the column hash are one call per record. `Opener.open` does the
same for one part; tests compare the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing, validity
from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.field import FieldArray
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import DecodeError, NotInField, Refused, WrongLength
from maskedlark.wire import columns
from maskedlark.wire.acceptance import Verdicts
from maskedlark.wire.columns import HASH_BYTES, Key
from maskedlark.wire.errors import (
    BadPadding,
    CannotOpen,
    FromTheFuture,
    NotAsDeclared,
    PastLifetime,
    WrongColumnHash,
    WrongHelper,
)
from maskedlark.wire.hpke import KEY_ID_BYTES
from maskedlark.wire.payload import MODEL, RecordLayout
from maskedlark.wire.report import HEAD_BYTES, ID_BYTES, Opener

_BLOCK = 1024
"""Consecutive HPKE calls with nothing between them. More would only hold more bytes twice."""
Index = NDArray[np.intp]


@dataclass(frozen=True, repr=False)
class Opened:
    """What a helper holds of the parts that it accepted, in order, and why it refused the others."""

    verdicts: Verdicts
    """On all parts."""
    heads: ByteRows
    """(n, 52): id, hour and column hash; these and all that follow are of the accepted parts."""
    records: AggregateRecords | Mapping[str, TrainingRecords]
    """To aggregate: all. To train: by tag, for tags that occur."""
    places: Mapping[str, Index]
    """To train: the indices of a tag's records among the accepted. Empty to aggregate."""
    checks: FieldArray | None = None
    """Our numbers for the check: (n, 2). None without a check key, or for reports that are not checked."""


def ids_of(heads: ByteRows) -> ByteRows:
    """The report ids: (n, 16)."""
    return heads[:, :ID_BYTES]


def hours_of(heads: ByteRows) -> NDArray[np.uint32]:
    """The hours: (n,)."""
    return np.ascontiguousarray(heads[:, ID_BYTES:-HASH_BYTES]).view(">u4")[:, 0].astype(np.uint32)


def decrypt_parts(opener: Opener, parts: bytes) -> Opened:
    """Open, check and expand many parts, one after the other. A bad one does not affect others.

    Needs memory for about twice the bytes of the parts, with shares written out: `datasets.max_parts`.
    """
    size = opener.layout.part_size(opener.place)
    if len(parts) % size:
        raise WrongLength(f"parts have {size} bytes here; {len(parts)} bytes are no whole number of them")
    verdicts = Verdicts(len(parts) // size)
    payloads = _unseal(opener, parts, verdicts)
    records: AggregateRecords | dict[str, TrainingRecords]
    if isinstance(opener.layout.declared[0], Measure):
        records, by_tag = _measured(payloads), {}
    else:
        read = [_trained(payloads, model) for model in range(len(opener.layout.declared))]
        undeclared = np.flatnonzero(payloads.rows[:, MODEL] >= len(read))
        payloads.keep(undeclared, np.zeros(len(undeclared), np.bool_), NotAsDeclared)
        by_tag = {tag: (index, own) for tag, index, own in read if len(index)}
        records = {tag: each for tag, (_, each) in by_tag.items()}
    accepted = np.flatnonzero(verdicts.accepted)
    places = {tag: np.searchsorted(accepted, index) for tag, (index, _) in by_tag.items()}
    checks = None if payloads.checks is None else payloads.checks[accepted]
    return Opened(verdicts, payloads.heads[accepted], records, places, checks)


@dataclass(frozen=True, repr=False)
class _Payloads:
    """Unsealed payloads, one per row."""

    opener: Opener
    verdicts: Verdicts
    heads: ByteRows
    """Of all parts."""
    parts: Index
    """Whose payload each row is."""
    plain: Sequence[bytes]
    checks: FieldArray | None
    """Our numbers for the check, of all parts: those of accepted ones are computed."""

    @cached_property
    def rows(self) -> ByteRows:
        """The payloads as an array."""
        return sharing.byte_rows(b"".join(self.plain), self.opener.payload.size)

    def keep(self, rows: Index, valid: NDArray[np.bool_], error: type[DecodeError | Refused]) -> Index:
        """Of these rows, those that are valid; the others are refused with this error."""
        self.verdicts.keep(self.parts[rows], valid, error)
        return rows[valid]

    def valid(self, record: RecordLayout, rows: Index) -> Index:
        """Of these rows, those that end with zeros, hold the public part's columns, and shares below p."""
        padded: NDArray[np.bool_] = np.any(self.rows[rows, record.secret.stop :], axis=1)
        rows = self.keep(rows, ~padded, BadPadding)
        digest, purpose, end = columns.digest, self.opener.layout.purpose, record.columns.stop
        # Loops over records: a hash is one call each.
        digests = b"".join([digest(self.plain[row][:end], purpose) for row in rows.tolist()])
        same = self.heads[self.parts[rows], -HASH_BYTES:] == sharing.byte_rows(digests, HASH_BYTES)
        bound: NDArray[np.bool_] = np.all(same, axis=1)
        rows = self.keep(rows, bound, WrongColumnHash)
        if self.opener.place:
            return rows
        words = np.ascontiguousarray(self.rows[rows, record.secret]).view("<u8")
        below: NDArray[np.bool_] = np.all(words < np.uint64(field.P), axis=1)
        return self.keep(rows, below, NotInField)

    def held(self, record: RecordLayout, rows: Index) -> tuple[ByteRows, FieldArray]:
        """The ids of valid rows, and what we store of our shares; neither bits of values nor the proof."""
        ids, place, declared = self.heads[self.parts[rows], :ID_BYTES], self.opener.place, record.declared
        secrets = self.rows[rows, record.secret]
        shares = sharing.recover(secrets, ids, declared.purpose, place, declared.carried())
        if self.checks is not None and self.opener.check_key is not None:
            t = validity.challenges(self.opener.check_key, ids, declared.points())
            self.checks[self.parts[rows]] = validity.evaluate(shares, t, declared)
        return ids, declared.hold(shares, place)


def _unseal(opener: Opener, data: bytes, verdicts: Verdicts) -> _Payloads:
    """The payloads of all parts that open. Loops over records: HPKE is one call each."""
    size, key_end = opener.layout.part_size(opener.place), HEAD_BYTES + KEY_ID_BYTES
    rows = sharing.byte_rows(data, size)
    keys = [(key, opener.layout.info(opener.place, key_id)) for key_id, key in opener.keys.items()]
    holders = _holders(rows[:, HEAD_BYTES:key_end], [*opener.keys])
    hours, allowed = hours_of(rows[:, :HEAD_BYTES]).astype(np.int64), opener.terms.hours
    parts = verdicts.keep(np.arange(len(rows)), holders >= 0, WrongHelper)
    parts = verdicts.keep(parts, hours[parts] >= allowed.start, PastLifetime)
    parts = verdicts.keep(parts, hours[parts] < allowed.stop, FromTheFuture)
    plain = []
    for start in range(0, len(parts), _BLOCK):
        envelopes = []
        for part in parts[start : start + _BLOCK].tolist():
            key, info = keys[holders[part]]
            at = part * size
            envelopes.append((part, key, data[at + key_end : at + size], info + data[at : at + HEAD_BYTES]))
        for part, key, sealed, info in envelopes:
            try:
                plain.append(key.open(sealed, info))
            except CannotOpen:
                verdicts.refuse(part, CannotOpen)
    checked = opener.check_key is not None and opener.layout.declared[0].checked
    checks = np.zeros((len(rows), validity.NUMBERS), np.int64) if checked else None
    return _Payloads(opener, verdicts, rows[:, :HEAD_BYTES], parts[verdicts.accepted[parts]], plain, checks)


def _holders(key_ids: ByteRows, ours: Sequence[bytes]) -> Index:
    """Which of our keys every part is sealed to; -1 for none."""
    holders = np.full(len(key_ids), -1, np.intp)
    for index, key_id in enumerate(ours):
        holders[(key_ids == np.frombuffer(key_id, np.uint8)).all(axis=1)] = index
    return holders


def _measured(payloads: _Payloads) -> AggregateRecords:
    """The records to aggregate, of all payloads that are as declared."""
    (record,) = payloads.opener.payload.records
    assert isinstance(record.declared, Measure)
    rows, seen = payloads.valid(record, np.arange(len(payloads.parts))), _SeenKeys()
    kinds = np.array([seen.kind(payloads.plain[row][record.columns]) for row in rows.tolist()], np.intp)
    for part, kind in zip(payloads.parts[rows].tolist(), kinds.tolist(), strict=True):
        if kind < 0:
            payloads.verdicts.refuse(part, seen.errors[-1 - kind])
    kinds, rows = kinds[kinds >= 0], rows[kinds >= 0]
    keys = {
        name: _coded([keys[i] for keys in seen.keys], kinds) for i, name in enumerate(record.declared.keys)
    }
    ids, shares = payloads.held(record, rows)
    return AggregateRecords(ids, keys, shares)


class _SeenKeys:
    """The distinct columns of many records, few since records are grouped by them. Each is decoded once."""

    def __init__(self) -> None:
        self.keys: list[tuple[Key, ...]] = []
        self.errors: list[type[DecodeError]] = []
        self._kinds: dict[bytes, int] = {}

    def kind(self, encoded: bytes) -> int:
        """The kind of one record's columns; below 0, -1 - the place of an error."""
        known = self._kinds.get(encoded)
        return self._decode(encoded) if known is None else known

    def _decode(self, encoded: bytes) -> int:
        try:
            self.keys.append(columns.decode_keys(encoded))
            kind = len(self.keys) - 1
        except DecodeError as error:
            self.errors.append(type(error))
            kind = -len(self.errors)
        self._kinds[encoded] = kind
        return kind


def _coded(of_kinds: Sequence[Key], kinds: Index) -> Coded:
    """A dictionary-coded column, its entries in order of first appearance."""
    numbers: dict[Key, int] = {}
    number = np.array([numbers.setdefault(key, len(numbers)) for key in of_kinds], np.intp)
    entries, first, codes = np.unique(number[kinds], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    values = list(numbers)
    return Coded(rank[codes], tuple(values[entry] for entry in entries[order].tolist()))


def _trained(payloads: _Payloads, place: int) -> tuple[str, Index, TrainingRecords]:
    """The records of one model: its tag, the parts that they are of, and what they hold."""
    record = payloads.opener.payload.records[place]
    model = record.declared
    assert isinstance(model, Model)
    rows = payloads.valid(record, np.flatnonzero(payloads.rows[:, MODEL] == place))
    shown, width = payloads.rows[rows, record.columns][:, 1:], model.width
    features, indices, typed = columns.typed(model.columns, shown[:, :width])
    candidates, allowed = columns.candidates_of(model, shown[:, width:])
    good = typed & allowed
    rows = payloads.keep(rows, good, NotAsDeclared)
    if not isinstance(model.policy, All):
        candidates = tuple(each[good] for each in candidates)
    indices = tuple(each[good] for each in indices)
    ids, shares = payloads.held(record, rows)
    return model.tag, payloads.parts[rows], TrainingRecords(ids, features[good], candidates, shares, indices)
