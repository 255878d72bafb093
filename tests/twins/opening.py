"""Opening many parts, the slow way: one part after the other, by the strict decoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from maskedlark.core import sharing
from maskedlark.core.records import AggregateRecords
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire.columns import TrainColumns
from maskedlark.wire.decrypt import Opened
from maskedlark.wire.report import Opener


class Record(NamedTuple):
    """All that a helper may know of one accepted part."""

    id: bytes
    hour: int
    tag: str | None
    shown: Any
    """Keys in declared order, or features and candidates."""
    shares: list[int]


def one_by_one(opener: Opener, parts: Sequence[bytes]) -> list[Record | str]:
    """A record, or the name of the error, for every part."""
    return [_open(opener, part) for part in parts]


def _open(opener: Opener, part: bytes) -> Record | str:
    try:
        public, payload = opener.open(part)
    except (DecodeError, Refused) as error:
        return type(error).__name__
    count = payload.columns.secrets()
    ids = sharing.byte_rows(public.id, 16)
    shares = sharing.recover([payload.secret], ids, opener.purpose, opener.place, count)[0].tolist()
    if isinstance(payload.columns, TrainColumns):
        shown: Any = (payload.columns.features, payload.columns.candidates)
        return Record(public.id, public.hour, payload.columns.tag, shown, shares)
    keys = {name: payload.columns.keys[name] for name in opener.declared.keys}  # type: ignore[union-attr]
    return Record(public.id, public.hour, None, keys, shares)


def as_records(opened: Opened) -> list[Record | str]:
    """Columns as records and errors, in the order of the parts."""
    rows = _trained(opened) if isinstance(opened.records, dict) else _measured(opened)
    verdicts = [opened.verdicts[part] for part in range(len(opened.verdicts.accepted))]
    assert len(opened.ids) == len(opened.hours) == len(rows) == verdicts.count(None)
    remaining = iter(rows)
    return [next(remaining) if verdict is None else verdict for verdict in verdicts]


def _measured(opened: Opened) -> list[Record]:
    records = opened.records
    assert isinstance(records, AggregateRecords)
    assert (records.ids == opened.ids).all()
    for coded in records.keys.values():
        first_seen = list(dict.fromkeys(coded.codes.tolist()))
        assert first_seen == list(range(len(coded.entries)))
    return [
        Record(
            opened.ids[i].tobytes(),
            int(opened.hours[i]),
            None,
            {name: coded.entries[coded.codes[i]] for name, coded in records.keys.items()},
            records.shares[i].tolist(),
        )
        for i in range(len(records))
    ]


def _trained(opened: Opened) -> list[Record]:
    found: dict[int, Record] = {}
    for tag, records in opened.records.items():  # type: ignore[union-attr]
        for row, place in enumerate(opened.places[tag].tolist()):
            assert (records.ids[row] == opened.ids[place]).all()
            candidates = tuple(tuple(each[row % len(each)].tolist()) for each in records.candidates)
            shown = (records.features[row].tobytes(), candidates)
            hour, report_id = int(opened.hours[place]), opened.ids[place].tobytes()
            found[place] = Record(report_id, hour, tag, shown, records.shares[row].tolist())
    return [found[place] for place in sorted(found)]
