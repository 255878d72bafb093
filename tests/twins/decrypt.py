"""Opening many parts, the slow way: one part after the other, and one number after the other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from maskedlark.core import sharing
from maskedlark.core.declared import Bytes, Measure, Model
from maskedlark.core.records import AggregateRecords
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire.decrypt import Opened, hours_of, ids_of
from maskedlark.wire.report import Opener
from tests.twins import validity


class Record(NamedTuple):
    """All that a helper may know of one accepted part."""

    id: bytes
    hour: int
    tag: str | None
    shown: Any
    """Keys in declared order, or features, indices and candidates."""
    shares: list[int]
    """What is stored of them."""
    checks: tuple[int, int] | None


def one_by_one(opener: Opener, parts: Sequence[bytes]) -> list[Record | str]:
    """A record, or the name of the error, for every part."""
    return [_open(opener, part) for part in parts]


def _open(opener: Opener, part: bytes) -> Record | str:
    try:
        head, payload = opener.open(part)
    except (DecodeError, Refused) as error:
        return type(error).__name__
    declared = {each.tag if isinstance(each, Model) else None: each for each in opener.layout.declared}
    record = declared[payload.model]
    count = record.carried()
    ids, secret = sharing.byte_rows(head.id, 16), sharing.byte_rows(payload.secret, len(payload.secret))
    shares = sharing.recover(secret, ids, record.purpose, opener.place, count)[0].tolist()
    if isinstance(record, Measure):
        shown: Any = dict(zip(record.keys, payload.keys, strict=True))
    else:
        shown = (*columns_of(record, payload.columns), payload.candidates)
    checks = _check(record, shares, opener.check_key, head.id) if record.checked else None
    return Record(head.id, head.hour, payload.model, shown, _held(record, shares, opener.place), checks)


def _check(record: Measure | Model, shares: list[int], key: bytes | None, report_id: bytes) -> Any:
    """The numbers of a checked record, if there is a key."""
    if key is None:
        return None
    sent, proof = shares[: record.secrets()], shares[record.secrets() :]
    if isinstance(record, Model):
        sent = validity.one_hot(sent, [record.policy.count(space) for space in record.labels])
    return validity.evaluate(sent, proof, validity.challenge(key, report_id, len(sent)))


def _held(record: Measure | Model, shares: list[int], place: int) -> list[int]:
    """Masks as they are; of a checked measure, values put together from their bits."""
    if isinstance(record, Model) or not record.checked:
        return shares[: record.secrets()]
    held, left = shares[:1], shares[1:]
    for value in record.values:
        weights = validity.weights(value.low, value.high)
        total = sum(weight * bit for weight, bit in zip(weights, left, strict=False))
        held.append((total + (min(value.low, 0) if place == 0 else 0)) % validity.P)
        left = left[len(weights) :]
    return held


def columns_of(model: Model, data: bytes) -> tuple[bytes, tuple[tuple[int, ...], ...]]:
    """Byte features, and the entries of every other column."""
    features, indices, at = b"", [], 0
    for column in model.columns:
        own, at = data[at : at + column.width], at + column.width
        if isinstance(column, Bytes):
            features = own
        else:
            indices.append(tuple(int.from_bytes(own[i : i + 4], "big") for i in range(0, len(own), 4)))
    return features, tuple(indices)


def as_records(opened: Opened) -> list[Record | str]:
    """Columns as records and errors, in the order of the parts."""
    rows = _trained(opened) if isinstance(opened.records, dict) else _measured(opened)
    verdicts = [opened.verdicts[part] for part in range(len(opened.verdicts.accepted))]
    assert len(opened.heads) == len(rows) == verdicts.count(None)
    remaining = iter(rows)
    return [next(remaining) if verdict is None else verdict for verdict in verdicts]


def _measured(opened: Opened) -> list[Record]:
    records, ids, hours = opened.records, ids_of(opened.heads), hours_of(opened.heads)
    assert isinstance(records, AggregateRecords)
    assert (records.ids == ids).all()
    for coded in records.keys.values():
        first_seen = list(dict.fromkeys(coded.codes.tolist()))
        assert first_seen == list(range(len(coded.entries)))
    return [
        Record(
            ids[i].tobytes(),
            int(hours[i]),
            None,
            {name: coded.entries[coded.codes[i]] for name, coded in records.keys.items()},
            records.shares[i].tolist(),
            _numbers(opened, i),
        )
        for i in range(len(records))
    ]


def _numbers(opened: Opened, place: int) -> Any:
    return None if opened.checks is None else tuple(opened.checks[place].tolist())


def _trained(opened: Opened) -> list[Record]:
    by_place: dict[int, Record] = {}
    ids, hours = ids_of(opened.heads), hours_of(opened.heads)
    for tag, records in opened.records.items():  # type: ignore[union-attr]
        for row, place in enumerate(opened.places[tag].tolist()):
            assert (records.ids[row] == ids[place]).all()
            indices = tuple(tuple(each[row].tolist()) for each in records.indices)
            candidates = tuple(tuple(each[row % len(each)].tolist()) for each in records.candidates)
            shown = (records.features[row].tobytes(), indices, candidates)
            shares = records.shares[row].tolist()
            by_place[place] = Record(
                ids[place].tobytes(), int(hours[place]), tag, shown, shares, _numbers(opened, place)
            )
    return [by_place[place] for place in sorted(by_place)]
