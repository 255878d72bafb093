"""Decrypts many parts of reports at once, into columns. Run by a helper on what the ad server sent it.

Stage by stage, not report by report: consecutive HPKE calls find their code in the processor's cache. Parts
and payloads are rows of arrays; only HPKE and the column hash are one call per record. `Opener.open` does the
same for one part; tests compare the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.field import FieldArray
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import (
    BadPadding,
    CannotOpen,
    DecodeError,
    FromTheFuture,
    NotAsDeclared,
    NotInField,
    PastLifetime,
    Refused,
    WrongColumnHash,
    WrongHelper,
    WrongLength,
)
from maskedlark.wire import columns
from maskedlark.wire.acceptance import Verdicts
from maskedlark.wire.columns import HASH_BYTES, Key
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


def ids_of(heads: ByteRows) -> ByteRows:
    """The report ids: (n, 16)."""
    return heads[:, :ID_BYTES]


def hours_of(heads: ByteRows) -> NDArray[np.uint32]:
    """The hours: (n,)."""
    return np.ascontiguousarray(heads[:, ID_BYTES:-HASH_BYTES]).view(">u4")[:, 0].astype(np.uint32)


def decrypt_parts(opener: Opener, parts: bytes) -> Opened:
    """Open, check and expand many parts, one after the other. A bad one does not affect others.

    Needs memory for about twice the bytes of the parts: pass some thousands at a time.
    """
    size = opener.layout.part_size(opener.place)
    if len(parts) % size:
        raise WrongLength(
            f"parts have {size} bytes each here; {len(parts)} bytes are no whole number of them"
        )
    heads = sharing.byte_rows(parts, size)[:, :HEAD_BYTES]
    verdicts = Verdicts(len(heads))
    payloads = _unseal(opener, parts, verdicts)
    records: AggregateRecords | dict[str, TrainingRecords]
    if isinstance(opener.layout.declared[0], Measure):
        records, by_tag = _measured(opener, payloads, heads, verdicts), {}
    else:
        known = payloads.rows[:, MODEL] < len(opener.layout.declared)
        verdicts.keep(payloads.parts, known, NotAsDeclared)
        read = [
            _trained(opener, place, payloads, heads, verdicts) for place in range(len(opener.layout.declared))
        ]
        by_tag = {tag: (index, found) for tag, index, found in read if len(index)}
        records = {tag: each for tag, (_, each) in by_tag.items()}
    accepted = np.flatnonzero(verdicts.accepted)
    places = {tag: np.searchsorted(accepted, index) for tag, (index, _) in by_tag.items()}
    return Opened(verdicts, heads[accepted], records, places)


class _Payloads(NamedTuple):
    """Unsealed payloads, as bytes and as rows, and whose part each is of."""

    plain: Sequence[bytes]
    rows: ByteRows
    parts: Index


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
    parts = parts[verdicts.accepted[parts]]
    return _Payloads(plain, sharing.byte_rows(b"".join(plain), opener.payload.size), parts)


def _holders(key_ids: ByteRows, ours: Sequence[bytes]) -> Index:
    """Which of our keys every part is sealed to; -1 for none."""
    holders = np.full(len(key_ids), -1, np.intp)
    for index, key_id in enumerate(ours):
        holders[(key_ids == np.frombuffer(key_id, np.uint8)).all(axis=1)] = index
    return holders


def _valid(
    opener: Opener,
    record: RecordLayout,
    payloads: _Payloads,
    rows: Index,
    heads: ByteRows,
    verdicts: Verdicts,
) -> Index:
    """Of these payloads, those that end with zeros, hold the public part's columns, and shares below p."""

    def keep(rows: Index, valid: NDArray[np.bool_], error: type[DecodeError | Refused]) -> Index:
        verdicts.keep(payloads.parts[rows], valid, error)
        return rows[valid]

    padded: NDArray[np.bool_] = np.any(payloads.rows[rows, record.secret.stop :], axis=1)
    rows = keep(rows, ~padded, BadPadding)
    digest, purpose, end = columns.digest, opener.layout.purpose, record.columns.stop
    # Loops over records: a hash is one call each.
    digests = b"".join([digest(payloads.plain[row][:end], purpose) for row in rows.tolist()])
    same = heads[payloads.parts[rows], -HASH_BYTES:] == sharing.byte_rows(digests, HASH_BYTES)
    bound: NDArray[np.bool_] = np.all(same, axis=1)
    rows = keep(rows, bound, WrongColumnHash)
    if opener.place:
        return rows
    words = np.ascontiguousarray(payloads.rows[rows, record.secret]).view("<u8")
    below: NDArray[np.bool_] = np.all(words < np.uint64(field.P), axis=1)
    return keep(rows, below, NotInField)


def _shares(opener: Opener, record: RecordLayout, secrets: ByteRows, ids: ByteRows) -> FieldArray:
    """The shares of valid payloads, without those of a proof."""
    count = record.declared.secrets()
    total = count + opener.layout.proof
    return sharing.recover(secrets, ids, opener.layout.purpose, opener.place, total)[:, :count]


def _measured(opener: Opener, payloads: _Payloads, heads: ByteRows, verdicts: Verdicts) -> AggregateRecords:
    """The records to aggregate, of all payloads that are as declared."""
    (record,) = opener.payload.records
    assert isinstance(record.declared, Measure)
    rows, seen = (
        _valid(opener, record, payloads, np.arange(len(payloads.parts)), heads, verdicts),
        _SeenKeys(),
    )
    kinds = np.array([seen.kind(payloads.plain[row][record.columns]) for row in rows.tolist()], np.intp)
    for row, kind in zip(rows[kinds < 0].tolist(), kinds[kinds < 0].tolist(), strict=True):
        verdicts.refuse(int(payloads.parts[row]), seen.errors[-1 - kind])
    rows, kinds = rows[kinds >= 0], kinds[kinds >= 0]
    ids = heads[payloads.parts[rows], :ID_BYTES]
    keys = {
        name: _coded([keys[i] for keys in seen.keys], kinds) for i, name in enumerate(record.declared.keys)
    }
    return AggregateRecords(ids, keys, _shares(opener, record, payloads.rows[rows, record.secret], ids))


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


def _trained(
    opener: Opener, place: int, payloads: _Payloads, heads: ByteRows, verdicts: Verdicts
) -> tuple[str, Index, TrainingRecords]:
    """The records of one model: its tag, the parts that they are of, and what they hold."""
    record = opener.payload.records[place]
    model = record.declared
    assert isinstance(model, Model)
    rows = np.flatnonzero(payloads.rows[:, MODEL] == place)
    rows = _valid(opener, record, payloads, rows, heads, verdicts)
    shown, width = payloads.rows[rows, record.columns][:, 1:], model.width()
    features, indices, typed = columns.typed(model.columns, shown[:, :width])
    candidates, allowed = columns.candidates_of(model, shown[:, width:])
    good = typed & allowed
    parts = verdicts.keep(payloads.parts[rows], good, NotAsDeclared)
    if not isinstance(model.policy, All):
        candidates = tuple(each[good] for each in candidates)
    ids = heads[parts, :ID_BYTES]
    shares = _shares(opener, record, payloads.rows[rows[good], record.secret], ids)
    indices = tuple(each[good] for each in indices)
    return model.tag, parts, TrainingRecords(ids, features[good], candidates, shares, indices)
