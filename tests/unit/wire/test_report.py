from typing import Any

import numpy as np
import pytest

from maskedlark.core.candidates import Pair, Sample
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.errors import (
    DoesNotFit,
    NotAsDeclared,
    NotDeclared,
    OutOfRange,
    WrongHelper,
    WrongLength,
    WrongType,
)
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import batch, columns, payload, report
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import AggregateColumns, Shape, TrainColumns
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, Recipient

RNG = SystemRandomness()
KEYS = [OpeningKey.generate(RNG) for _ in range(2)]
MODEL = Model("tag", (Bytes(3),), (LabelSpace.integers(-300, 300),), Sample(4))


def envelope(declared, purpose, keys=KEYS):
    recipients = tuple(Recipient(f"h{i}", key.sealing) for i, key in enumerate(keys))
    return Envelope("ads.example", purpose, bytes(32), recipients, payload.size([declared]))


def opener(place, declared=MODEL):
    return Opener(f"h{place}", place, {KEYS[place].key_id: KEYS[place]}, declared, payload.size([declared]))


def make(labels, real=None, model=MODEL):
    labels = np.array(labels)
    features = np.arange(3 * len(labels), dtype=np.uint8).reshape(-1, 3)
    shown, secrets = model.mask([labels], np.ones(len(labels), np.bool_) if real is None else real, RNG)
    encoded = batch.train_columns(model.tag, features, shown)
    return batch.seal(envelope(model, Purpose.TRAIN), encoded, secrets, [7] * len(labels), RNG)


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        Model("t" * 64, (Bytes(1000),), (LabelSpace.categorical(10), LabelSpace.binary())),
        Model("p", (), (LabelSpace.integers(-70_000 // 2, 30_000),), Pair()),
    ],
)
def test_every_record_of_a_model_fits_and_has_the_same_size(model):
    lowest, highest = model.labels[0].values[0], model.labels[0].values[-1]
    labels = [[0, highest, lowest]] + [[0, 1, 1]] * (len(model.labels) - 1)
    shown, secrets = model.mask(labels, np.array([True, True, False]), RNG)
    encoded = batch.train_columns(model.tag, np.zeros((3, model.features), np.uint8), shown)
    made = batch.seal(envelope(model, Purpose.TRAIN), encoded, secrets, [1, 2, 3], RNG)
    assert len({len(each) for each in made}) == 1
    assert {len(sealed) for each in made for _, sealed in report.decode(each).payloads} == {
        payload.size([model]) + 48
    }


def test_every_record_of_a_measure_fits_and_has_the_same_size():
    measure = Measure(("campaign", "city"), (Value("euros", 0, 9),))
    keys: list[dict[str, str | int]] = [
        {"campaign": 0, "city": ""},
        {"campaign": -(2**63) + 1, "city": "é" * 32},
    ]
    encoded = [AggregateColumns(each, ("euros",)).encode() for each in keys]
    secrets = measure.lift([[0, 9]], np.array([True, True]))
    made = batch.seal(envelope(measure, Purpose.AGGREGATE), encoded, secrets, [0, 0], RNG)
    assert len({len(each) for each in made}) == 1
    found = opener(1, measure).open(report.decode(made[1]).part(1))[1]
    assert found.columns == AggregateColumns(keys[1], ("euros",))


def test_a_record_beyond_the_declared_size_is_refused_and_sealed_to_nobody():
    with pytest.raises(DoesNotFit, match="bytes more"):
        payload.pad(bytes(100), 96)


def test_helpers_see_the_same_columns_and_different_secrets():
    made = report.decode(make([5])[0])
    (first, mine), (second, yours) = (opener(place).open(made.part(place)) for place in (0, 1))
    assert first == second
    assert mine.columns == yours.columns
    assert mine.secret != yours.secret
    assert mine.secret.hex() not in repr(mine)


def test_reports_of_the_same_record_share_nothing():
    one, two = (report.decode(data) for data in (make([5])[0], make([5])[0]))
    assert report.decode_public(one.public).id != report.decode_public(two.public).id
    assert report.decode_public(one.public).column_hash != report.decode_public(two.public).column_hash
    assert all(mine[1] != yours[1] for mine, yours in zip(one.payloads, two.payloads, strict=True))


def test_a_helper_that_the_report_does_not_know_has_no_part():
    with pytest.raises(WrongHelper, match="no payload for helper 2"):
        report.decode(make([1])[0]).part(2)
    with pytest.raises(WrongHelper):
        report.decode(make([1])[0]).part(-1)


def test_two_helpers_with_one_key_or_name_are_refused():
    key, other = KEYS[0].sealing, KEYS[1].sealing
    for recipients in (
        (Recipient("a", key), Recipient("b", key)),
        (Recipient("a", key), Recipient("a", other)),
    ):
        with pytest.raises(NotDeclared, match="two shares"):
            Envelope("ads.example", Purpose.TRAIN, bytes(32), recipients, 96)


def test_features_that_are_not_bytes_are_refused():
    with pytest.raises(NotDeclared, match="uint8"):
        batch.train_columns("tag", np.array([[1, 2, 3]]), [np.array([[0, 1]])])
    with pytest.raises(NotDeclared, match="differ in length"):
        batch.train_columns("tag", np.zeros((2, 3), np.uint8), [np.array([[0, 1]])])


MEASURE = Measure(("campaign", "city"), (Value("euros", 0, 9), Value("visits", 0, 1)))


@pytest.mark.parametrize(
    "shown",
    [
        AggregateColumns({"campaign": 1}, ("euros", "visits")),
        AggregateColumns({"campaign": 1, "town": 2}, ("euros", "visits")),
        AggregateColumns({"campaign": 1, "city": 2}, ("visits", "euros")),
        AggregateColumns({"campaign": 1, "city": 2}, ("euros",)),
        TrainColumns("tag", b"", ((0, 1),)),
    ],
)
def test_measured_records_of_another_shape_are_refused(shown):
    shape = Shape(MEASURE)
    shape.check(AggregateColumns({"city": 2, "campaign": 1}, ("euros", "visits")))
    with pytest.raises(NotAsDeclared):
        shape.check(shown)


def test_what_cannot_be_sealed_is_refused_by_the_browser():
    bad: dict[Any, type[Exception]] = {"x" * 65: WrongLength, 2**63: OutOfRange, 1.5: WrongType}
    for key, error in bad.items():
        with pytest.raises(error):
            batch.aggregate_columns(Measure(("city",), ()), [[key]], 1)
    with pytest.raises(NotDeclared, match="fewer candidates"):
        payload.size([Model("tag", (Bytes(1),), (LabelSpace.integers(0, 65_535),))])


def test_columns_secrets_and_hours_must_be_as_many():
    with pytest.raises(NotDeclared, match="differ in number"):
        batch.seal(envelope(MODEL, Purpose.TRAIN), [b""], np.zeros((2, 4), np.int64), [0], RNG)


def test_the_column_hash_is_salted_and_bound_to_the_purpose():
    digests = {
        columns.digest(b"columns", salt, purpose) for salt in (bytes(16), b"s" * 16) for purpose in Purpose
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    "shown",
    [
        TrainColumns("gat", bytes(3), ((0, 1, 2, 3),)),
        TrainColumns("tag", bytes(2), ((0, 1, 2, 3),)),
        TrainColumns("tag", bytes(3), ((0, 1, 2),)),
        TrainColumns("tag", bytes(3), ((1, 2, 3, 4),)),
        TrainColumns("tag", bytes(3), ((0, 1, 2, 301),)),
        TrainColumns("tag", bytes(3), ((0, 1, 2, 3), (0, 1))),
        AggregateColumns({}, ()),
    ],
)
def test_training_records_of_another_shape_are_refused(shown):
    shape = Shape(MODEL)
    for _ in range(2):  # the second time from memory
        shape.check(TrainColumns("tag", bytes(3), ((-300, 300, 0, 7),)))
        with pytest.raises(NotAsDeclared):
            shape.check(shown)
