"""Intercepts and slopes that were set wrong are found again, as far as noise allows."""

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.training import recalibrating
from maskedlark.training.bucket_scores import BucketScores
from maskedlark.training.metrics import Binary, Classes
from maskedlark.training.predictor import Predictor, load
from maskedlark.training.recalibrating import Recalibration

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(-2, 1, 30_000)


def released(slope=1.0, intercept=0.0, deviation=4.0, ones_alone=True, buckets=20):
    """The histogram of a model that says LOGITS where slope * LOGITS + intercept is true."""
    truth = RNG.random(len(LOGITS)) < 1 / (1 + np.exp(-slope * LOGITS - intercept))
    edges = np.quantile(LOGITS, np.arange(1, buckets) / buckets)
    place = np.searchsorted(edges, LOGITS, side="right")
    rows, ones = np.bincount(place), np.bincount(place, truth) + RNG.normal(0, deviation, buckets)
    zeros = rows - ones if ones_alone else rows - ones + RNG.normal(0, deviation * 1.4, buckets)
    ends = np.concatenate([[0.0], 1 / (1 + np.exp(-edges)), [1.0]])
    known = BucketScores.of_rows(LOGITS, place, buckets)
    return Binary(np.stack([zeros, ones], axis=1), deviation, ends, known, 0.0 if ones_alone else None)


@pytest.mark.parametrize("ones_alone", [True, False])
@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (1.6, 0.9), (0.5, -0.5)])
def test_what_was_wrong_is_set_right(slope, intercept, ones_alone):
    found = recalibrating.of(released(slope, intercept, ones_alone=ones_alone))
    # By chance alone the slope has a deviation of 0.02, the intercept 0.04, and the prior pulls a little.
    assert found.slope == pytest.approx(slope, abs=0.12)
    assert found.intercept == pytest.approx(intercept, abs=0.25)
    mean = 1 / (1 + np.exp(-found.slope * LOGITS - found.intercept))
    truth = 1 / (1 + np.exp(-slope * LOGITS - intercept))
    assert mean.mean() == pytest.approx(truth.mean(), rel=0.05)


def test_where_noise_drowns_everything_the_model_stays_as_it_is():
    found = recalibrating.of(released(1.6, 0.9, deviation=1e6))
    assert (found.slope, found.intercept) == pytest.approx((1, 0), abs=0.05)
    assert recalibrating.of(released(-3.0, -6.0)).slope >= 0.05
    empty = Binary(np.zeros((4, 2)), 1.0, np.linspace(0, 1, 5))
    assert recalibrating.of(empty) == Recalibration()


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_copy_of_the_model_has_it_in_its_last_layer(outputs):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, outputs))
    made = Predictor(model, ["bce"] * outputs, "visits")
    rows = RNG.integers(0, 256, (20, 3)).astype(np.uint8)
    before = made.predict(rows).reshape(20, outputs)
    by = [Recalibration(1.5, 0.25), Recalibration(0.5, -1.0)][:outputs]
    after = recalibrating.predictor(made, by).predict(rows).reshape(20, outputs)
    for was, now, own in zip(before.T, after.T, by, strict=True):
        logits = np.log(was) - np.log1p(-was)
        assert now == pytest.approx(1 / (1 + np.exp(-own.slope * logits - own.intercept)), rel=1e-5)
    assert np.array_equal(made.predict(rows).reshape(20, outputs), before), "the original stays"


def test_a_saved_model_holds_the_one_that_it_was_recalibrated_from(tmp_path):
    rows = RNG.integers(0, 256, (20, 3)).astype(np.uint8)
    made = Predictor(nn.Linear(3, 1), "bce", "visits")
    changed = recalibrating.predictor(made, [Recalibration(1.5, 0.25)])
    twice = recalibrating.predictor(changed, [Recalibration(0.5, 1.0)])
    twice.save(tmp_path / "model.pt")
    found = load(tmp_path / "model.pt", nn.Linear(3, 1))
    assert np.array_equal(found.predict(rows), twice.predict(rows))
    assert found.before is not None
    assert np.array_equal(found.before.predict(rows), made.predict(rows)), "of several, the first"
    assert found.is_recalibrated_from(made.model)
    assert not found.is_recalibrated_from(changed.model)
    assert not made.is_recalibrated_from(made.model)


def test_what_has_no_probabilities_or_no_place_for_an_intercept_is_refused():
    with pytest.raises(BadArguments, match="binary labels"):
        recalibrating.of_labels([Classes(np.eye(3), 1.0)])
    with pytest.raises(BadArguments, match="no bias"):
        recalibrating.predictor(Predictor(nn.Linear(3, 1, bias=False), "bce", "visits"), [Recalibration()])
