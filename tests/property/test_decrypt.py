"""Opening many parts at once gives what opening each by itself gives: the same records, the same errors.

Parts are good, damaged from outside, or sealed by somebody who follows the protocol up to the seal and puts
something wrong inside.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.core.candidates import Pair, Sample
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.errors import DoesNotFit
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import columns, payload, report
from maskedlark.wire.acceptance import DatasetOpener, Terms
from maskedlark.wire.columns import AggregateColumns, TrainColumns
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, PublicPart, Report
from tests.property.mutating import mutate
from tests.twins import opening as twin

RNG = FixedRandomness(b"opening")
KEYS = {key.key_id: key for key in (OpeningKey.generate(RNG) for _ in range(2))}
STRANGER = OpeningKey.generate(RNG)
NOW, LIFETIME_S = 480_000 * 3600 + 100, 24 * 3600
TERMS = Terms("ads.example", b"d" * 32, LIFETIME_S, NOW)
MEASURE = Measure(("campaign", "city"), (Value("euros", 0, 9),))
MODELS = [
    Model("all", (Bytes(5),)),
    Model("lla", (Bytes(5),)),  # of the same form but for its tag
    Model("two labels", (), (LabelSpace.integers(-300, 300), LabelSpace.binary())),
    Model("pair", (Bytes(3),), (LabelSpace.integers(-2, 3),), Pair()),
    Model("sample", (Bytes(3),), (LabelSpace.integers(-300, 300), LabelSpace.binary()), Sample(3)),
]
UNKNOWN = Model("unknown", (Bytes(5),))


def opener(purpose: Purpose, place: int, bound: bool) -> Opener:
    declared = MEASURE if purpose is Purpose.AGGREGATE else {model.tag: model for model in MODELS}
    size = payload.size([MEASURE] if purpose is Purpose.AGGREGATE else [*MODELS, UNKNOWN])
    if bound:
        return DatasetOpener("helper", place, KEYS, declared, size, TERMS)
    return Opener("helper", place, KEYS, declared, size)


class Making:
    """One part in the making: every step can be got wrong."""

    def __init__(self, using: Opener, rng: FixedRandomness) -> None:
        self.opener, self.rng = using, rng
        self.size, self.place, self.purpose = using.size, using.place, using.purpose
        self.hour, self.origin, self.parameters = 480_000 - self.pick(20), "ads.example", b"d" * 32
        self.key = list(KEYS.values())[self.pick(2)]
        self.addressee = "helper"
        self.salt = rng.bytes(16)
        self.columns, self.secrets = self.shown()
        self.secret = self.carried()
        self.hashed = self.columns
        self.body: bytes | None = None
        self.padded: bytes | None = None

    def pick(self, bound: int) -> int:
        return int(self.rng.below(bound, 1)[0])

    def shown(self) -> tuple[bytes, int]:
        if self.opener.purpose is Purpose.AGGREGATE:
            cities: list[str | int] = ["Rome", "", "é" * 32, 7, -3]
            return self.aggregate({"campaign": self.pick(3), "city": cities[self.pick(5)]})
        return self.train(MODELS[self.pick(len(MODELS))])

    def aggregate(
        self, keys: dict[str, str | int], values: tuple[str, ...] = ("euros",)
    ) -> tuple[bytes, int]:
        return AggregateColumns(keys, values).encode(), 1 + len(values)

    def train(self, model: Model) -> tuple[bytes, int]:
        labels = [[space.values[self.pick(len(space))]] for space in model.labels]
        drawn, _ = model.mask(labels, np.array([True]), self.rng)
        candidates = tuple(tuple(each[0].tolist()) for each in drawn)
        return TrainColumns(model.tag, self.rng.bytes(model.features), candidates).encode(), model.secrets()

    def carried(self) -> bytes:
        if self.place:
            return self.rng.bytes(16)
        return field.to_bytes(self.rng.below(field.P, self.secrets))

    def show(self, made: tuple[bytes, int]) -> None:
        """Other columns, all the rest as it should be."""
        self.columns, self.secrets = made
        self.hashed, self.secret = self.columns, self.carried()

    def padding(self) -> bytes:
        body = self.body
        if body is None:
            body = payload.body(self.salt, self.secret, self.columns)
        return payload.pad(body, self.size) if self.padded is None else self.padded

    def part(self) -> bytes:
        digest = columns.digest(self.hashed, self.salt, self.opener.purpose)
        public = PublicPart(
            self.rng.bytes(16), self.hour, self.origin, self.purpose, self.parameters, digest
        ).encode()
        bound = report.info(public, self.addressee, self.place, self.key.key_id)
        sealed = self.key.sealing.seal(self.padding(), bound)
        return Report(public, ((self.key.key_id, sealed),)).part(0)


Fault = Callable[[Making], None]


def with_bytes(change: Callable[[bytearray, Making], object]) -> Fault:
    """A change of the padded payload, before it is sealed."""

    def fault(making: Making) -> None:
        padded = bytearray(making.padding())
        change(padded, making)
        making.padded = bytes(padded)

    return fault


def mutated_columns(making: Making) -> None:
    making.columns = making.hashed = mutate(making.columns, making.rng)[:90]


def mutated_payload(making: Making) -> None:
    making.padded = (mutate(making.padding(), making.rng) + bytes(making.size))[: making.size]


def other_candidates(making: Making) -> None:
    shown = TrainColumns("all", bytes(5), ((1, 0),))
    making.show((shown.encode(), 2))


def keyless(making: Making) -> None:
    making.show(making.aggregate({"campaign": 1}))


FAULTS: dict[str, Fault] = {
    "none": lambda making: None,
    "another origin": lambda making: setattr(making, "origin", "sda.example"),
    "a longer origin": lambda making: setattr(making, "origin", "bads.example"),
    "another document": lambda making: setattr(making, "parameters", b"e" * 32),
    "last hour of life": lambda making: setattr(making, "hour", 480_000 - 24),
    "first hour past life": lambda making: setattr(making, "hour", 480_000 - 25),
    "a short hour": lambda making: setattr(making, "hour", 700),
    "last hour ahead": lambda making: setattr(making, "hour", 480_048),
    "first hour too far ahead": lambda making: setattr(making, "hour", 480_049),
    "another purpose": lambda making: setattr(
        making, "purpose", Purpose.TRAIN if making.purpose is Purpose.AGGREGATE else Purpose.AGGREGATE
    ),
    "another size": lambda making: setattr(making, "size", making.size + 32),
    "a stranger's key": lambda making: setattr(making, "key", STRANGER),
    "another helper's": lambda making: setattr(making, "addressee", "other"),
    "another salt": lambda making: setattr(making, "hashed", making.columns + b"x"),
    "mutated columns": mutated_columns,
    "mutated payload": mutated_payload,
    "columns then more": lambda making: making.show((making.columns + b"\0", making.secrets)),
    "no columns": lambda making: making.show((b"", making.secrets)),
    "columns of the other purpose": lambda making: making.show(
        making.train(MODELS[0]) if making.purpose is Purpose.AGGREGATE else making.aggregate({"campaign": 1})
    ),
    "a key too few": keyless,
    "a key too many": lambda making: making.show(making.aggregate({"campaign": 1, "city": 2, "town": 3})),
    "other values": lambda making: making.show(making.aggregate({"campaign": 1, "city": 2}, ("visits",))),
    "too long a key": lambda making: making.show(making.aggregate({"campaign": 1, "city": "x" * 65})),
    "unknown tag": lambda making: making.show(making.train(UNKNOWN)),
    "a feature too few": lambda making: making.show(making.train(replace(MODELS[0], columns=(Bytes(4),)))),
    "candidates in another order": other_candidates,
    "a short secret": lambda making: setattr(making, "secret", making.secret[:-1]),
    "no secret": lambda making: setattr(making, "secret", b""),
    "a share of p": lambda making: setattr(
        making, "secret", making.secret[:-8] + field.P.to_bytes(8, "little")
    ),
    "a share of all ones": lambda making: setattr(making, "secret", b"\xff" * len(making.secret)),
    "a body then more": lambda making: setattr(
        making, "body", payload.body(making.salt, making.secret, making.columns) + b"\0"
    ),
    "padding of one": with_bytes(lambda padded, _: padded.__setitem__(-1, 1)),
    "another version": with_bytes(lambda padded, _: padded.__setitem__(0, 2)),
    "a body longer than the payload": with_bytes(lambda padded, _: padded.__setitem__(1, 255)),
    "a body cut short": with_bytes(lambda padded, _: padded.__setitem__(4, padded[4] ^ 1)),
    "a flipped byte": with_bytes(
        lambda padded, making: padded.__setitem__(making.pick(len(padded)), making.pick(256))
    ),
}
MAKING = st.tuples(st.sampled_from(sorted(FAULTS)), st.sampled_from(["", "", "", "mutate", "flip"]))


def make(using: Opener, fault: str, outside: str, rng: FixedRandomness) -> bytes:
    """A part with a fault inside, outside, or none."""
    making = Making(using, rng)
    FAULTS[fault](making)
    try:
        part = making.part()
    except DoesNotFit:
        return b""
    if outside == "mutate":
        return mutate(part, rng)
    if outside == "flip":
        at = making.pick(len(part))
        return part[:at] + bytes([part[at] ^ 1 + making.pick(255)]) + part[at + 1 :]
    return part


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("purpose", list(Purpose))
@settings(max_examples=40, deadline=None)
@given(st.lists(MAKING, max_size=24), st.booleans(), st.binary(max_size=6))
def test_many_at_once_are_as_each_by_itself(purpose, place, made, bound, seed):
    using, rng = opener(purpose, place, bound), FixedRandomness(seed)
    parts = [make(using, fault, outside, rng) for fault, outside in made]
    expected = twin.one_by_one(using, parts)
    opened = decrypt_parts(using, parts)
    assert twin.as_records(opened) == expected
    assert opened.verdicts.refused == Counter(each for each in expected if isinstance(each, str))
    assert opened.verdicts.accepted.tolist() == [not isinstance(each, str) for each in expected]


REASONS = {
    "another origin": "OtherOrigin",
    "another document": "OtherParameters",
    "first hour past life": "PastLifetime",
    "a short hour": "PastLifetime",
    "first hour too far ahead": "FromTheFuture",
    "another purpose": "WrongPurpose",
    "another size": "WrongLength",
    "a stranger's key": "WrongHelper",
    "another helper's": "CannotOpen",
    "another salt": "WrongColumnHash",
    "columns then more": "TrailingBytes",
    "unknown tag": "NotAsDeclared",
    "a feature too few": "NotAsDeclared",
    "candidates in another order": "NotAsDeclared",
    "a short secret": "WrongLength",
    "a share of p": "NotInField",
    "a body then more": "TrailingBytes",
    "padding of one": "BadPadding",
    "another version": "UnsupportedVersion",
    "a body longer than the payload": "Truncated",
}


def test_every_kind_of_refusal_is_reached_and_named():
    using = opener(Purpose.TRAIN, 0, bound=True)
    parts = [make(using, fault, "", FixedRandomness(fault.encode())) for fault in REASONS]
    verdicts = decrypt_parts(using, parts).verdicts
    assert {fault: verdicts[part] for part, fault in enumerate(REASONS)} == REASONS
