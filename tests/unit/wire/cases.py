"""Reports that tests of the wire make and open."""

from dataclasses import replace

import numpy as np

from maskedlark.core.candidates import Sample
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import AggregateRecords, TrainingRecords
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import batch, columns
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.decrypt import Opened
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, ReportLayout

RNG = SystemRandomness()
HOUR = 480_000
KEYS = [OpeningKey.generate(RNG) for _ in range(5)]
TERMS = Terms(24 * 3600, HOUR * 3600)
MODEL = Model("tag", (Bytes(3),), (LabelSpace.integers(-300, 300),), Sample(4))
MEASURE = Measure(("campaign", "city"), (Value("euros", 0, 9),))


def layout(*declared, helpers=2, checked=False):
    names = tuple(f"h{place}" for place in range(helpers))
    every = tuple(replace(each, checked=checked or each.checked) for each in declared or (MODEL,))
    return ReportLayout("ads.example", b"d" * 32, names, every)


def envelope(under):
    return Envelope(under, tuple(key.sealing for key in KEYS[: len(under.helpers)]))


def opener(under, place):
    return Opener(under, place, {KEYS[place].key_id: KEYS[place]}, TERMS)


def to_train(under, labels, place=0, hour=HOUR):
    model = under.declared[place]
    rows = np.arange(model.width * len(labels), dtype=np.uint8).reshape(len(labels), -1)
    shown, secrets = model.mask([labels] * len(model.labels), np.ones(len(labels), np.bool_), RNG)
    encoded = columns.train_columns(place, model, rows, shown)
    return batch.seal(envelope(under), place, encoded, secrets, [hour] * len(labels), RNG)


def trained(opened: Opened, tag: str) -> TrainingRecords:
    assert not isinstance(opened.records, AggregateRecords)
    return opened.records[tag]


def to_measure(under, campaigns, cities, euros):
    secrets = MEASURE.lift([euros], np.ones(len(euros), np.bool_))
    shown = columns.aggregate_columns(MEASURE, [campaigns, cities], len(euros))
    return batch.seal(envelope(under), 0, shown, secrets, [HOUR] * len(euros), RNG)
