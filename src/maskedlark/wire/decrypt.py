"""Decrypts many parts of reports at once, into columns. Run by a helper on what the ad server sent it.

Stage by stage, not report by report: consecutive HPKE calls find their code in the processor's cache. All but
HPKE and hashes is done on arrays. `Opener.open` does the same for one part; tests compare the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import CannotOpen, DecodeError, Refused
from maskedlark.wire import columns, payload_form
from maskedlark.wire.acceptance import Verdicts
from maskedlark.wire.addressing import Addressing
from maskedlark.wire.columns import AggregateColumns, Key, TrainColumns
from maskedlark.wire.payloads import Index, Payloads
from maskedlark.wire.report import Opener

_BLOCK = 1024
"""Consecutive HPKE calls with nothing between them. More would only hold more bytes twice."""
_UNREADABLE = -1


@dataclass(frozen=True, repr=False)
class Opened:
    """What a helper holds of the parts that it accepted, in order, and why it refused the others."""

    verdicts: Verdicts
    """On all parts."""
    ids: ByteRows
    """(n, 16); these and all that follow are of the accepted parts."""
    hours: NDArray[np.uint32]
    column_hashes: ByteRows
    """(n, 32)."""
    records: AggregateRecords | Mapping[str, TrainingRecords]
    """To aggregate: all. To train: by tag, for tags that occur."""
    places: Mapping[str, Index]
    """To train: the indices of a tag's records among the accepted. Empty to aggregate."""


def decrypt_parts(opener: Opener, parts: Sequence[bytes]) -> Opened:
    """Open, check and expand many parts. A bad one does not affect others.

    Needs memory for about twice the bytes of the parts: pass some thousands at a time.
    """
    verdicts = Verdicts(len(parts))
    public = Addressing(opener, parts, verdicts)
    padded = _unseal(public, verdicts)
    unsealed = np.flatnonzero(verdicts.accepted)
    payloads = Payloads(opener, padded, unsealed, public.column_hashes[unsealed], verdicts)
    records: AggregateRecords | dict[str, TrainingRecords]
    if isinstance(opener.declared, Measure):
        records, rows = _read_measured(opener, opener.declared, payloads, public.ids[unsealed]), {}
    else:
        by_tag = _read_trained(opener, payloads, public.ids[unsealed])
        records = {tag: each for tag, (_, each) in by_tag.items()}
        rows = {tag: index for tag, (index, _) in by_tag.items()}
    accepted = np.flatnonzero(verdicts.accepted)
    places = {tag: np.searchsorted(accepted, unsealed[index]) for tag, index in rows.items()}
    hours, hashes = public.hours[accepted], public.column_hashes[accepted]
    return Opened(verdicts, public.ids[accepted], hours, hashes, records, places)


def _unseal(public: Addressing, verdicts: Verdicts) -> list[bytes]:
    """The payloads of all parts that open. Loops over records: HPKE is one call each."""
    padded, parts = [], np.flatnonzero(verdicts.accepted).tolist()
    for start in range(0, len(parts), _BLOCK):
        block = parts[start : start + _BLOCK]
        for part, (key, sealed, info) in zip(block, public.envelopes(block), strict=True):
            try:
                padded.append(key.open(sealed, info))
            except CannotOpen as error:
                verdicts.refuse(part, error)
    return padded


def _read_measured(opener: Opener, measure: Measure, payloads: Payloads, ids: ByteRows) -> AggregateRecords:
    """The records to aggregate, of all payloads that are as declared; `ids` has one per payload."""
    width = payload_form.secret_bytes(measure, opener.place)
    secrets = np.zeros((len(ids), width), np.uint8)
    kinds = np.full(len(ids), _UNREADABLE, np.intp)
    seen = _SeenColumns(opener, measure)
    for length in np.unique(payloads.lengths).tolist():
        form = payload_form.measured(measure, opener.place, length, opener.size)
        if form is not None:
            rows = payloads.take(form)
            kinds[rows] = [seen.kind(payloads.padded[row][form.columns]) for row in rows.tolist()]
            secrets[rows] = payloads.rows[rows, form.secret]
    payloads.left |= kinds == _UNREADABLE  # The strict decoder names the reason.
    for row, payload in payloads.strict():
        kinds[row] = seen.kind(payload.columns.encode())
        secrets[row] = np.frombuffer(payload.secret, np.uint8)
    good = np.flatnonzero(kinds != _UNREADABLE)
    carried = sharing.cut(secrets[good].tobytes(), width)
    shares = sharing.recover(carried, ids[good], Purpose.AGGREGATE, opener.place, measure.secrets())
    return AggregateRecords(ids[good], seen.coded(kinds[good]), shares)


class _SeenColumns:
    """The distinct columns of many records, few since records are grouped by them. Each is decoded once."""

    def __init__(self, opener: Opener, measure: Measure) -> None:
        self._shape, self._names = opener.shape, measure.keys
        self._keys: list[tuple[Key, ...]] = []
        self.kind = cache(self._decode)

    def _decode(self, encoded: bytes) -> int:
        """The kind of one record. Strict: columns that are not as declared have none."""
        try:
            decoded = columns.decode(encoded, Purpose.AGGREGATE)
            self._shape.check(decoded)
        except (DecodeError, Refused):
            return _UNREADABLE
        assert isinstance(decoded, AggregateColumns)
        self._keys.append(tuple(decoded.keys[name] for name in self._names))
        return len(self._keys) - 1

    def coded(self, kinds: Index) -> dict[str, Coded]:
        """A column for every key, from the kind of every record."""
        return {name: _coded([keys[i] for keys in self._keys], kinds) for i, name in enumerate(self._names)}


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


_Placed = tuple[Index, TrainingRecords]
"""The payload indices of one tag's records, and the records."""


def _read_trained(opener: Opener, payloads: Payloads, ids: ByteRows) -> dict[str, _Placed]:
    """The records to train, of all payloads that are as declared, by tag that occurs; one id per payload."""
    models = opener.shape.models
    by_tag = {tag: _by_form(opener, model, payloads, ids) for tag, model in models.items()}
    one_by_one: dict[str, list[tuple[int, TrainColumns, bytes]]] = {}
    for row, payload in payloads.strict():
        shown = payload.columns
        assert isinstance(shown, TrainColumns)
        assert by_tag[shown.tag] is None, "a form has missed a record: there is one encoding of each"
        one_by_one.setdefault(shown.tag, []).append((row, shown, payload.secret))
    by_tag |= {tag: _strict(opener, models[tag], read, ids) for tag, read in one_by_one.items()}
    return {tag: placed for tag, placed in by_tag.items() if placed is not None and len(placed[0])}


def _by_form(opener: Opener, model: Model, payloads: Payloads, ids: ByteRows) -> _Placed | None:
    """The records of a model that shows all candidates: these never vary, so one row is stored."""
    form = payload_form.trained(model, opener.place, opener.size)
    if form is None:
        return None
    rows = payloads.take(form)
    secrets = [payloads.padded[row][form.secret] for row in rows.tolist()]
    candidates = tuple(np.array([space.values], np.int64) for space in model.labels)
    shares = sharing.recover(secrets, ids[rows], Purpose.TRAIN, opener.place, model.secrets())
    return rows, TrainingRecords(ids[rows], payloads.rows[rows, form.free], candidates, shares)


def _strict(
    opener: Opener, model: Model, read: Sequence[tuple[int, TrainColumns, bytes]], ids: ByteRows
) -> _Placed:
    """The records of a model whose candidates vary, as the strict decoder read them."""
    rows, shown, secrets = zip(*read, strict=True)
    features = np.frombuffer(b"".join([each.features for each in shown]), np.uint8)
    by_label = zip(*[each.candidates for each in shown], strict=True)
    candidates = tuple(np.array(each, np.int64) for each in by_label)
    index = np.array(rows, np.intp)
    shares = sharing.recover(secrets, ids[index], Purpose.TRAIN, opener.place, model.secrets())
    return index, TrainingRecords(ids[index], features.reshape(len(rows), -1), candidates, shares)
