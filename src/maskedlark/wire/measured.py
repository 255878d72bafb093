"""Records to aggregate, from payloads. Run by a helper."""

from collections.abc import Sequence

import numpy as np

from maskedlark.core import sharing
from maskedlark.core.declared import Measure
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Coded, Measured
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire import columns, payload_form
from maskedlark.wire.columns import AggregateColumns, Key
from maskedlark.wire.payloads import Index, Payloads
from maskedlark.wire.report import Opener

_UNREADABLE = -1


def read(opener: Opener, measure: Measure, payloads: Payloads, ids: ByteRows) -> Measured:
    """The records of all payloads that are as declared; `ids` has one of them a payload."""
    width = payload_form.secret_bytes(measure, opener.place)
    secrets = np.zeros((len(ids), width), np.uint8)
    kinds = np.full(len(ids), _UNREADABLE, np.intp)
    seen = Seen(opener, measure)
    for length in np.unique(payloads.lengths).tolist():
        form = payload_form.measured(measure, opener.place, length, opener.size)
        if form is not None:
            rows = payloads.take(form)
            kinds[rows] = seen.kinds([payloads.padded[row][form.columns] for row in rows.tolist()])
            secrets[rows] = payloads.rows[rows, form.secret]
    payloads.left |= kinds == _UNREADABLE  # The strict decoder says why.
    for row, found in payloads.strict():
        kinds[row] = seen.kind(found.columns.encode())
        secrets[row] = np.frombuffer(found.secret, np.uint8)
    good = np.flatnonzero(kinds != _UNREADABLE)
    carried = sharing.cut(secrets[good].tobytes(), width)
    shares = sharing.recover(carried, ids[good], Purpose.AGGREGATE, opener.place, measure.secrets())
    return Measured(ids[good], seen.coded(kinds[good]), shares)


class Seen:
    """The different columns of many records. They are few, since records are to be grouped by them.

    Each is decoded once; a record is then only the number of its kind.
    """

    def __init__(self, opener: Opener, measure: Measure) -> None:
        self._shape, self._names = opener.shape, measure.keys
        self._known: dict[bytes, int] = {}
        self._keys: list[tuple[Key, ...]] = []

    def kinds(self, encoded: Sequence[bytes]) -> list[int]:
        """The kind of every record. Strict: columns that are not as declared are of none."""
        return [self.kind(each) for each in encoded]

    def kind(self, encoded: bytes) -> int:
        """The kind of one record."""
        found = self._known.get(encoded)
        if found is None:
            found = self._known[encoded] = self._decode(encoded)
        return found

    def _decode(self, encoded: bytes) -> int:
        try:
            found = columns.decode(encoded, Purpose.AGGREGATE)
            self._shape.check(found)
        except (DecodeError, Refused):
            return _UNREADABLE
        assert isinstance(found, AggregateColumns)
        self._keys.append(tuple(found.keys[name] for name in self._names))
        return len(self._keys) - 1

    def coded(self, kinds: Index) -> dict[str, Coded]:
        """A column for every key, from the kind of every record."""
        return {name: _coded([keys[i] for keys in self._keys], kinds) for i, name in enumerate(self._names)}


def _coded(of_kinds: Sequence[Key], kinds: Index) -> Coded:
    """A dictionary-coded column, its entries in the order in which records show them."""
    numbers: dict[Key, int] = {}
    number = np.array([numbers.setdefault(key, len(numbers)) for key in of_kinds], np.intp)
    entries, first, codes = np.unique(number[kinds], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    values = list(numbers)
    return Coded(rank[codes], tuple(values[entry] for entry in entries[order].tolist()))
