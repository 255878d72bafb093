"""Parts in the making, one at a time: every step can be got wrong before it is sealed.

Like `wire/batch.py`, but for one helper, and by somebody who need not follow the protocol.
"""

from dataclasses import replace

import numpy as np

from maskedlark.core import field
from maskedlark.core.candidates import All, Pair, Sample
from maskedlark.core.declared import Bag, Bytes, Category, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import columns
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.payload import RecordLayout
from maskedlark.wire.report import Head, Opener, ReportLayout

KEYS = {key.key_id: key for key in (OpeningKey(FixedRandomness(b"%d" % i).bytes(32)) for i in range(2))}
STRANGER = OpeningKey(FixedRandomness(b"stranger").bytes(32))
HOUR = 480_000
TERMS = Terms(24 * 3600, HOUR * 3600 + 100)
MEASURE = Measure(("campaign", "city"), (Value("euros", -3, 9), Value("visits", 0, 0), Value("seen", 0, 1)))
WIDE = LabelSpace.integers(-300, 300)
MODELS = (
    Model("all", (Bytes(5),)),
    Model("two labels", (Category(3),), (WIDE, LabelSpace.binary())),
    Model("pair", (Bytes(3),), (LabelSpace.integers(-2, 3),), Pair()),
    Model("sample", (Bytes(3),), (WIDE, LabelSpace.binary()), Sample(3)),
    Model("categories", (Category(7), Bytes(2), Category(1 << 31))),
    Model(
        "bags", (Bag(9, 4), Bytes(1), Category(3), Bag(1 << 20, 2)), (LabelSpace.categorical(4),), Sample(2)
    ),
)


def layout(purpose: Purpose, helpers: int, checked: bool = False) -> ReportLayout:
    """The layout of a measure, or of models of different sizes."""
    every: tuple[Measure | Model, ...] = (MEASURE,) if purpose is Purpose.AGGREGATE else MODELS
    declared = tuple(replace(each, checked=checked) for each in every)
    names = tuple(f"helper-{place}" for place in range(helpers))
    return ReportLayout("ads.example", b"d" * 32, names, declared)


def opener(purpose: Purpose, place: int, helpers: int = 2, check_key: bytes | None = None) -> Opener:
    """A helper's; it has two keys. With a check key, reports are checked."""
    return Opener(layout(purpose, helpers, check_key is not None), place, KEYS, TERMS, check_key)


class Making:
    """One part in the making."""

    def __init__(self, using: Opener, rng: FixedRandomness, place: int | None = None) -> None:
        self.opener, self.rng = using, rng
        self.sealed_for = using.layout, using.place
        self.hour, self.key = HOUR - self.pick(18), [*KEYS.values()][self.pick(2)]
        self.salt = rng.bytes(columns.SALT_BYTES)
        declared = using.layout.declared
        self.model = self.pick(len(declared)) if place is None else place
        self.columns = self.shown(declared[self.model])
        self.hashed: bytes | None = None
        self.secret = self.carried()
        self.padding: bytes | None = None

    def pick(self, bound: int) -> int:
        return int(self.rng.below(bound, 1)[0])

    def shown(self, declared: Measure | Model) -> bytes:
        if isinstance(declared, Measure):
            cities: list[str | int] = ["Rome", "", "é" * 32, 7, -3, -(2**63) + 1]
            keys: list[list[str | int]] = [[self.pick(3)], [cities[self.pick(6)]]]
            return columns.aggregate_columns(declared, keys, 1).tobytes()
        labels = [[space.values[self.pick(len(space))]] for space in declared.labels]
        candidates, _ = declared.mask(labels, np.array([True]), self.rng)
        return columns.train_columns(self.model, declared, self.typed(declared), candidates).tobytes()

    def typed(self, model: Model) -> np.ndarray:
        values: list[np.ndarray] = []
        for column in model.columns:
            if isinstance(column, Bytes):
                values.append(np.frombuffer(self.rng.bytes(column.count), np.uint8)[None])
            else:
                entries = self.rng.below(column.size, column.length)
                if isinstance(column, Bag):
                    entries[: self.pick(column.length + 1)] = columns.ABSENT
                values.append(entries[None])
        return columns.encode_typed(model.columns, values)

    @property
    def record(self) -> RecordLayout:
        return self.opener.payload.records[self.model]

    def carried(self) -> bytes:
        size = self.record.secret.stop - self.record.secret.start
        return (
            self.rng.bytes(size) if self.opener.place else field.to_bytes(self.rng.below(field.P, size // 8))
        )

    def show(self, at: int, data: bytes) -> None:
        """Other bytes among the open columns, all the rest as it should be."""
        at %= len(self.columns)
        self.columns = self.columns[:at] + data + self.columns[at + len(data) :]

    def payload(self) -> bytes:
        body = self.salt + self.columns + self.secret
        size = self.opener.payload.size
        return (body + (self.padding or b"")).ljust(size, b"\0")[:size]

    def part(self, payload: bytes | None = None) -> bytes:
        payload = self.payload() if payload is None else payload
        # Over what a helper takes for the columns of this payload, whatever they are.
        bound = payload[: self.stop(payload)] if self.hashed is None else self.hashed
        digest = columns.digest(bound, self.opener.layout.purpose)
        head = Head(self.rng.bytes(16), self.hour, digest).encode()
        theirs, place = self.sealed_for
        sealed = self.key.sealing.seal(payload, theirs.info(place, self.key.key_id) + head)
        return head + self.key.key_id + sealed

    def stop(self, payload: bytes) -> int:
        """Where the columns of this payload end."""
        records = self.opener.payload.records
        place = payload[16] if self.opener.layout.purpose is Purpose.TRAIN else 0
        stop: int = records[place if place < len(records) else self.model].columns.stop
        return stop


def candidates_at(model: Model) -> int:
    """Where the candidates begin in the open columns."""
    assert not isinstance(model.policy, All)
    return 1 + sum(column.width for column in model.columns)


def column_at(model: Model, kind: type, number: int = 0) -> int:
    """Where a column of this kind begins in the open columns."""
    widths = [column.width for column in model.columns]
    places = [1 + sum(widths[:i]) for i, column in enumerate(model.columns) if isinstance(column, kind)]
    return places[number]
