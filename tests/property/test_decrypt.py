"""Opening many parts at once gives what opening each by itself gives: the same records, the same errors.

Parts are good, damaged from outside, or sealed by somebody who follows the protocol up to the seal and puts
something wrong inside.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.core.declared import Bag, Category
from maskedlark.core.purpose import Purpose
from maskedlark.errors import WrongLength
from maskedlark.randomness import FixedRandomness
from maskedlark.wire.columns import ABSENT, CELL_BYTES
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.errors import TrailingBytes, Truncated
from maskedlark.wire.report import Opener
from tests.property.mutating import mutate
from tests.property.sealing import HOUR, MODELS, STRANGER, Making, candidates_at, column_at, opener
from tests.twins import decrypt as twin

TAGS = [model.tag for model in MODELS]
Fault = Callable[[Making], None]


def other(**changes: object) -> Fault:
    def fault(making: Making) -> None:
        for name, value in changes.items():
            setattr(making, name, value)

    return fault


def sealed_under(**changes: object) -> Fault:
    """Sealed for a report of another layout: another origin, document or helper's name."""

    def fault(making: Making) -> None:
        theirs, place = making.sealed_for
        making.sealed_for = replace(theirs, **changes), place  # type: ignore[arg-type]

    return fault


def share(data: bytes) -> Fault:
    return lambda making: setattr(making, "secret", making.secret[: -len(data)] + data)


def hashed_otherwise(making: Making) -> None:
    making.hashed = making.salt + making.columns + b"x"


def padding(data: bytes) -> Fault:
    return lambda making: setattr(making, "padding", data)


def last_byte(making: Making) -> None:
    room = making.opener.payload.size - making.record.secret.stop
    making.padding = bytes(room - 1) + b"\1" if room else b""


def cell(number: int, data: bytes) -> Fault:
    """Another cell of a key; to train, other bytes of the columns."""
    return lambda making: making.show(number * CELL_BYTES, data)


def numbers(*entries: int) -> bytes:
    return b"".join(entry.to_bytes(4, "big") for entry in entries)


def places(*entries: int) -> bytes:
    return b"".join(entry.to_bytes(2, "big") for entry in entries)


FAULTS: dict[str, Fault] = {
    "none": lambda making: None,
    "sealed for another origin": sealed_under(origin="sda.example"),
    "sealed for a longer origin": sealed_under(origin="bads.example"),
    "sealed under another document": sealed_under(parameters=b"e" * 32),
    "sealed to another name": sealed_under(helpers=("other-0", "other-1", "o2", "o3", "o4")),
    "sealed to another place": lambda making: setattr(
        making, "sealed_for", (making.sealed_for[0], 1 - min(making.sealed_for[1], 1))
    ),
    "last hour of life": other(hour=HOUR - 18),
    "an hour of 1970": other(hour=700),
    "first hour past life": other(hour=HOUR - 19),
    "last hour ahead": other(hour=HOUR + 48),
    "first hour too far ahead": other(hour=HOUR + 49),
    "the last hour of all": other(hour=(1 << 32) - 1),
    "a stranger's key": other(key=STRANGER),
    "another hash": hashed_otherwise,
    "a share of p": share(field.P.to_bytes(8, "little")),
    "a share of p - 1": share((field.P - 1).to_bytes(8, "little")),
    "a share of all ones": share(b"\xff" * 8),
    "padding of one": padding(b"\1"),
    "padding at the end": last_byte,
    "unknown model": lambda making: making.show(0, bytes([len(MODELS)])),
    "model 255": lambda making: making.show(0, b"\xff"),
    "too long a text": cell(0, bytes([65])),
    "neither text nor number": cell(1, bytes([254])),
    "a text that is not UTF-8": cell(1, b"\1\xff" + bytes(63)),
    "a text, then more": cell(0, b"\1ab" + bytes(62)),
    "a number, then more": cell(0, b"\xff" + bytes(8) + b"\1" + bytes(55)),
    "a number of 64 bits": cell(0, b"\xff\x80" + bytes(63)),
    "the first byte of the other columns": lambda making: making.show(1, bytes([making.pick(256)])),
    "the last byte of the columns": lambda making: making.show(-1, bytes([making.pick(256)])),
}


def of_model(tag: str, change: Fault) -> Fault:
    """A fault in a record of this model; nothing where records are measured."""

    def fault(making: Making) -> None:
        if making.opener.layout.purpose is Purpose.TRAIN:
            making.__init__(making.opener, making.rng, TAGS.index(tag))  # type: ignore[misc]
            change(making)

    return fault


PAIR, SAMPLE, CATEGORIES, BAGS = (MODELS[TAGS.index(tag)] for tag in ("pair", "sample", "categories", "bags"))
BAG, LAST_BAG = column_at(BAGS, Bag), column_at(BAGS, Bag, 1)
FAULTS |= {
    f"{tag}: {name}": of_model(tag, lambda making, at=at, data=data: making.show(at, data))  # type: ignore[misc]
    for tag, name, at, data in [
        ("pair", "both 0", candidates_at(PAIR), places(2, 2)),
        ("pair", "none 0", candidates_at(PAIR), places(0, 1)),
        ("pair", "just allowed", candidates_at(PAIR), places(5, 2)),
        ("pair", "not in the space", candidates_at(PAIR), places(2, 6)),
        ("pair", "far from the space", candidates_at(PAIR), places(2, 65_535)),
        ("sample", "one twice", candidates_at(SAMPLE), places(300, 1, 1)),
        ("sample", "none 0", candidates_at(SAMPLE), places(1, 2, 3)),
        ("sample", "the second label's twice", candidates_at(SAMPLE) + 6, places(0, 0)),
        ("sample", "the second label's from the first", candidates_at(SAMPLE) + 6, places(0, 2)),
        ("categories", "the last", column_at(CATEGORIES, Category), numbers(6)),
        ("categories", "one too high", column_at(CATEGORIES, Category), numbers(7)),
        ("categories", "one absent", column_at(CATEGORIES, Category), numbers(ABSENT)),
        ("categories", "the second too high", column_at(CATEGORIES, Category, 1), numbers(1 << 31)),
        ("bags", "unsorted", BAG, numbers(1, 3, 2, 4)),
        ("bags", "absent first", BAG, numbers(ABSENT, 1, 2, 3)),
        ("bags", "one twice", BAG, numbers(1, 1, 2, ABSENT)),
        ("bags", "empty", BAG, numbers(*[ABSENT] * 4)),
        ("bags", "an entry too high", BAG, numbers(1, 2, 3, 9)),
        ("bags", "an entry almost absent", BAG, numbers(1, 2, 3, ABSENT - 1)),
        ("bags", "the last one unsorted", LAST_BAG, numbers(7, 6)),
    ]
}
OUTSIDE = ["", "", "", "flip", "another byte in the payload", "a mutated payload"]
MAKING = st.tuples(st.sampled_from(sorted(FAULTS)), st.sampled_from(OUTSIDE))


def make(using: Opener, fault: str, outside: str, rng: FixedRandomness) -> bytes:
    """A part with a fault inside, outside, or none."""
    making = Making(using, rng)
    FAULTS[fault](making)
    payload = making.payload()
    if outside == "a mutated payload":
        payload = mutate(payload, rng).ljust(len(payload), b"\0")[: len(payload)]
    if outside == "another byte in the payload":
        at = making.pick(len(payload))
        payload = payload[:at] + bytes([making.pick(256)]) + payload[at + 1 :]
    part = making.part(payload)
    if outside == "flip":
        at = making.pick(len(part))
        return part[:at] + bytes([part[at] ^ 1 + making.pick(255)]) + part[at + 1 :]
    return part


def agree(using: Opener, parts: list[bytes]) -> list[str | None]:
    """The errors of all parts, if both say the same."""
    expected = twin.one_by_one(using, parts)
    opened = decrypt_parts(using, b"".join(parts))
    assert twin.as_records(opened) == expected
    assert opened.verdicts.refused == Counter(each for each in expected if isinstance(each, str))
    assert opened.verdicts.accepted.tolist() == [not isinstance(each, str) for each in expected]
    return [each if isinstance(each, str) else None for each in expected]


@pytest.mark.parametrize(("helpers", "place"), [(2, 0), (2, 1), (3, 2), (5, 0), (5, 4)])
@pytest.mark.parametrize("purpose", list(Purpose))
@settings(max_examples=25, deadline=None)
@given(st.lists(MAKING, max_size=24), st.sampled_from([None, bytes(32)]), st.binary(max_size=6))
def test_many_at_once_are_as_each_by_itself(purpose, helpers, place, made, check_key, seed):
    using, rng = opener(purpose, place, helpers, check_key), FixedRandomness(seed)
    agree(using, [make(using, fault, outside, rng) for fault, outside in made])


SEALED = {name: "CannotOpen" for name in FAULTS if name.startswith("sealed ")}
REASONS = {
    **SEALED,
    "an hour of 1970": "PastLifetime",
    "first hour past life": "PastLifetime",
    "first hour too far ahead": "FromTheFuture",
    "the last hour of all": "FromTheFuture",
    "a stranger's key": "WrongHelper",
    "another hash": "WrongColumnHash",
}
TRAINING = REASONS | {
    "unknown model": "NotAsDeclared",
    "model 255": "NotAsDeclared",
    "pair: both 0": "NotAsDeclared",
    "pair: none 0": "NotAsDeclared",
    "pair: not in the space": "NotAsDeclared",
    "pair: far from the space": "NotAsDeclared",
    "sample: one twice": "NotAsDeclared",
    "sample: none 0": "NotAsDeclared",
    "sample: the second label's twice": "NotAsDeclared",
    "sample: the second label's from the first": "NotAsDeclared",
    "categories: one too high": "NotAsDeclared",
    "categories: one absent": "NotAsDeclared",
    "categories: the second too high": "NotAsDeclared",
    "bags: unsorted": "NotAsDeclared",
    "bags: absent first": "NotAsDeclared",
    "bags: an entry too high": "NotAsDeclared",
    "bags: an entry almost absent": "NotAsDeclared",
    "bags: the last one unsorted": "NotAsDeclared",
}
MEASURING = REASONS | {
    "too long a text": "WrongType",
    "neither text nor number": "WrongType",
    "a text that is not UTF-8": "WrongType",
    "a text, then more": "BadPadding",
    "a number, then more": "BadPadding",
    "a number of 64 bits": "OutOfRange",
}
FIRST = {"a share of p": "NotInField", "a share of all ones": "NotInField"}
"""Only helper 0 has elements; every seed is one."""
GOOD = {
    "none",
    "last hour of life",
    "last hour ahead",
    "a share of p - 1",
    "pair: just allowed",
    "categories: the last",
    "bags: one twice",
    "bags: empty",
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("purpose", list(Purpose))
def test_every_kind_of_refusal_is_reached_and_named(purpose, place):
    using = opener(purpose, place)
    reasons = TRAINING if purpose is Purpose.TRAIN else MEASURING
    expected = dict.fromkeys(GOOD) | reasons | (FIRST if place == 0 else {})
    parts = [make(using, fault, "", FixedRandomness(fault.encode())) for fault in expected]
    assert dict(zip(expected, agree(using, parts), strict=True)) == expected


@pytest.mark.parametrize("place", [0, 1])
def test_every_byte_after_a_smaller_record_is_zero(place):
    using, rng = opener(Purpose.TRAIN, place), FixedRandomness(b"padding")
    parts = []
    for model, record in enumerate(using.payload.records):
        making = Making(using, rng, model)
        for at in range(record.secret.stop, using.payload.size, 97):
            payload = bytearray(making.payload())
            payload[at] = 1
            parts.append(making.part(bytes(payload)))
    assert set(agree(using, parts)) == {"BadPadding"}


@pytest.mark.parametrize("purpose", list(Purpose))
def test_parts_of_another_size_are_refused_before_any_is_opened(purpose):
    using = opener(purpose, 0)
    part = make(using, "none", "", FixedRandomness(b"size"))
    for data in (part[:-1], part * 2 + b"\0"):
        with pytest.raises(WrongLength, match="no whole number"):
            decrypt_parts(using, data)
    with pytest.raises(Truncated):
        using.open(part[:-1])
    with pytest.raises(TrailingBytes):
        using.open(part + b"\0")
    with pytest.raises(WrongLength):
        using.payload.decode(bytes(using.payload.size - 1), bytes(32))
