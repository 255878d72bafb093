"""What one forged report does to sums and masks, in memory: all without checks, nothing with them."""

import numpy as np
import pytest

from maskedlark.clock import FixedClock, hour_of
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.wire import batch, columns
from maskedlark.wire.batch import Envelope
from maskedlark.workflow import Workflow
from tests.unit.core import forging

CLOCK = FixedClock(1_900_000_000)
TOML = """
k = 1
checks = {checks}
keys = ["city"]
budget = {{epsilon = 1000.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 50.0, delta = 1e-4}}, coalition = {{epsilon = 80.0, delta = 1e-4}}}}
mechanisms.sums = {{kind = "laplace", noise_floor = 0.01}}
mechanisms.gradient = {{kind = "gaussian", noise_floor = 0.2}}
values.profit = [-20, 100]
[models.clicks]
columns = [{{kind = "bytes", count = 3}}]
labels = [{{kind = "categorical", classes = 3, value = "profit"}}]
"""
RECORDS = 20


def workflow(checks: bool, helpers: int) -> Workflow:
    return Workflow.declared(TOML.format(checks=str(checks).lower()), helpers, CLOCK, SystemRandomness())


def sealed(way: Workflow, purpose: Purpose, shown: np.ndarray, secrets: np.ndarray) -> list[bytes]:
    """A report of any secrets, by a browser that forges what it can."""
    declared = way.document.layout(purpose).declared[0]
    if declared.checked:
        secrets = forging.with_proof(secrets, declared, SystemRandomness())
    keys = tuple(each.keys.sealing_key(CLOCK.now()) for each in way.helpers)
    envelope, hours = Envelope(way.document.layout(purpose), keys), [hour_of(CLOCK.now())]
    return batch.seal_proved(envelope, 0, shown, secrets, hours, SystemRandomness())


def bought(way: Workflow, count: int, profit: int) -> list[bytes]:
    """A report of one count and one profit, whatever they are."""
    measure = way.document.measure
    secrets = np.array([[count, profit]])
    if measure.checked:  # Its bits are those of 0, but the first, which counts for 1.
        secrets = measure.lift([[0]], np.array([True]))
        secrets[:, :2] = [[count, secrets[0, 1] + profit]]
    shown = columns.aggregate_columns(measure, [["Rome"]], 1)
    return sealed(way, Purpose.AGGREGATE, shown, field.from_signed(secrets))


NUMBERS = {"a billion": (1, 10**9), "-1": (-1, 0), "a count of 1000": (1000, 0), "debts": (1, -(10**9))}
MASKS = {"a mask of 5": [0, 5, 0], "-1": [0, -1, 0], "two hot labels": [0, 1, 1], "cancelling": [3, -2, 0]}


@pytest.mark.parametrize(("checks", "helpers"), [(False, 2), (True, 2), (True, 3)])
def test_one_report_moves_a_sum_as_far_as_it_likes_unless_it_is_checked(checks, helpers):
    with workflow(checks, helpers) as way:
        for name, (count, profit) in NUMBERS.items():
            honest = way._browsers().measure([["Rome"] * RECORDS], [[5] * RECORDS])
            way.freeze(name, Purpose.AGGREGATE, [*honest, bought(way, count, profit)])
            answer = way.query(["count", "profit"], datasets=[name])
            counted, summed = (number.estimate for number in answer.rows[0].numbers)
            moved = (0, 0) if checks else (count, profit)
            assert round(counted) == RECORDS + moved[0], name
            assert abs(summed - 5 * RECORDS - moved[1]) < 100, name
            assert len(way.stored[name]) == RECORDS + (not checks)


@pytest.mark.parametrize("checks", [False, True])
def test_masks_that_are_not_one_hot_reach_a_model_unless_they_are_checked(checks):
    features = np.arange(3 * RECORDS, dtype=np.uint8).reshape(RECORDS, 3)
    with workflow(checks, 2) as way:
        model = way.document.declared_models["clicks"]
        space = [np.array([model.labels[0].values])]
        shown = columns.train_columns(0, model, np.zeros((1, 3), np.uint8), space)
        for name, masks in MASKS.items():
            forged = sealed(way, Purpose.TRAIN, shown, field.from_signed(np.array([masks])))
            honest = way._browsers().train("clicks", features, [[1] * RECORDS])
            way.freeze(name, Purpose.TRAIN, [forged, *honest])
            together = field.to_signed(sharing.combine([view.shares for view in way.views[name]]))
            expected = [[0, 1, 0]] * RECORDS
            assert together.tolist() == (expected if checks else [masks, *expected]), name


def test_reports_of_randomised_labels_are_one_hot_and_pass():
    toml = TOML.format(checks="true") + "randomised_response = {epsilon = 0.1}"
    with Workflow.declared(toml, 2, CLOCK, FixedRandomness(b"randomised")) as way:
        way.make_training_dataset("ads", "clicks", np.zeros((90, 3), np.uint8), [[1] * 90])
        together = sharing.combine([view.shares for view in way.views["ads"]])
        assert len(way.stored["ads"]) == 90
    assert together.sum(axis=1).tolist() == [1] * 90
    assert (together.sum(axis=0) > 10).all()
