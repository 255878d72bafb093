"""Measures of a histogram: the truth without noise, as others compute it."""

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from maskedlark.training.metrics import Binary, Classes, Measure, Values

RNG = np.random.default_rng(5)
SCORES = RNG.beta(2, 3, 5000)
TRUTH = (RNG.random(5000) < SCORES).astype(int)


def binary(scores=SCORES, truth=TRUTH, buckets=20, deviation=0.0):
    counts = np.zeros((buckets, 2))
    np.add.at(counts, (np.minimum((scores * buckets).astype(int), buckets - 1), truth), 1)
    return Binary(counts, deviation, even(buckets))


def even(buckets):
    return np.linspace(0, 1, buckets + 1)


@pytest.mark.parametrize("buckets", [2, 7, 20, 400])
def test_without_noise_the_truth_is_within_what_buckets_hide(buckets):
    found = binary(buckets=buckets)
    assert found.auc.within(float(roc_auc_score(TRUTH, SCORES)))
    assert found.log_loss.within(float(log_loss(TRUTH, SCORES)))
    assert found.accuracy.within(float(accuracy_score(TRUTH, SCORES >= 0.5)))
    assert (found.records.value, found.records.error) == (5000, 0)
    assert found.auc.error == found.log_loss.error == found.accuracy.error == 0


def test_many_buckets_hide_little():
    found = binary(buckets=400)
    assert found.auc.value == pytest.approx(roc_auc_score(TRUTH, SCORES), abs=1e-3)
    assert found.log_loss.value == pytest.approx(log_loss(TRUTH, SCORES), abs=1e-3)
    assert found.auc.coarse < 0.01
    assert found.log_loss.coarse < 0.02


def test_an_even_number_of_buckets_hides_nothing_of_accuracy():
    assert binary(buckets=2).accuracy == Measure(float(accuracy_score(TRUTH, SCORES >= 0.5)), 0.0)
    assert binary(buckets=3).accuracy.coarse > 0


def test_calibration_is_the_share_of_ones_by_bucket():
    found = binary(buckets=10)
    for middle, measure in found.calibration():
        inside = (middle - 0.05 <= SCORES) & (middle + 0.05 > SCORES)
        assert measure.value == pytest.approx(TRUTH[inside].mean())
        assert measure.within(middle, errors=0) or abs(measure.value - middle) < 0.15
    assert [middle for middle, _ in found.calibration()] == pytest.approx([0.05 + i / 10 for i in range(10)])


def test_buckets_that_noise_drowns_are_not_shown():
    noisy = Binary(np.array([[3.0, 2.0], [200.0, 100.0]]), 10.0, even(2))
    assert [middle for middle, _ in noisy.calibration()] == [0.75]
    assert noisy.calibration(least=400) == []


def test_an_empty_histogram_breaks_nothing():
    for counts in (np.zeros((4, 2)), np.full((4, 2), -3.0)):
        empty = Binary(counts, 5.0, even(4))
        for measure in (empty.auc, empty.log_loss, empty.accuracy):
            assert math.isfinite(measure.value)
            assert math.isfinite(measure.error)
        assert empty.calibration() == []


def test_a_perfect_and_a_useless_model():
    perfect = Binary(np.array([[50.0, 0.0], [0.0, 70.0]]), 0.0, even(2))
    assert perfect.auc == Measure(1.0, 0.0)
    assert perfect.accuracy.value == 1
    useless = Binary(np.array([[50.0, 70.0]]), 0.0, even(1))
    assert useless.auc.value == 0.5
    assert useless.auc.coarse == 0.5


def test_classes():
    found = Classes(np.array([[8.0, 1.0, 0.0], [2.0, 5.0, 0.0], [0.0, 0.0, 4.0]]), 0.0)
    assert found.accuracy == Measure(17 / 20, 0.0)
    assert "accuracy 0.8500" in str(found)


def test_values():
    values, predictions = RNG.integers(-2, 3, 3000), RNG.normal(0, 0.7, 3000).clip(-2, 2)
    for buckets in (5, 200):
        edges = np.linspace(-2, 2, buckets + 1)
        counts = np.zeros((buckets, 5))
        place = np.minimum(((predictions + 2) / 4 * buckets).astype(int), buckets - 1)
        np.add.at(counts, (place, values + 2), 1)
        found = Values(counts, 0.0, edges, np.arange(-2.0, 3.0))
        assert found.squared_error.within(float(((predictions - values) ** 2).mean()))
        assert found.bias.within(float((predictions - values).mean()))
    assert found.squared_error.coarse < 0.1
    assert "squared error" in str(found)


def test_a_measure_is_shown_with_two_standard_errors():
    assert str(Measure(0.75, 0.01, 0.002)) == "0.7500 ± 0.0220"
    assert str(binary(deviation=3.0)).startswith("AUC 0.")
