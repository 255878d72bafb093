"""Scores inside buckets, held against what all rows say."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from maskedlark.training.bucket_scores import BucketScores
from maskedlark.training.metrics import Binary

RNG = np.random.default_rng(7)
LOGITS = np.round(RNG.normal(-2, 1.5, 20_000), 2)
CHANCE = 1 / (1 + np.exp(-LOGITS))
TRUTH = (RNG.random(20_000) < CHANCE).astype(int)


def cut(buckets):
    edges = np.unique(np.quantile(LOGITS, np.arange(1, buckets) / buckets))
    return edges, np.searchsorted(edges, LOGITS, side="right")


@pytest.mark.parametrize("buckets", [1, 3, 10])
def test_few_buckets_of_a_calibrated_model_say_nearly_all(buckets):
    edges, place = cut(buckets)
    known = BucketScores.of_rows(LOGITS, place, len(edges) + 1)
    counts = np.zeros((len(edges) + 1, 2))
    np.add.at(counts, (place, TRUTH), 1)
    ends = np.concatenate([[0.0], 1 / (1 + np.exp(-edges)), [1.0]])
    found = Binary(counts, 0.0, ends, known)
    # By chance alone, an AUC of 3,000 ones has a deviation of 0.004, a log-loss of 0.003: five of them.
    assert found.auc.value == pytest.approx(roc_auc_score(TRUTH, CHANCE), abs=0.02)
    assert found.log_loss.value == pytest.approx(log_loss(TRUTH, CHANCE), abs=0.015)
    assert found.accuracy.value == pytest.approx(np.mean((CHANCE >= 0.5) == TRUTH), abs=0.02)
    blind = Binary(counts, 0.0, ends)
    assert found.auc.coarse < blind.auc.coarse


def test_scores_that_are_tied_tell_nothing_of_order():
    known = BucketScores.of_rows(np.array([1.0, 1.0, 1.0, -3.0]), np.array([1, 1, 1, 0]), 3)
    assert known.auc == pytest.approx(0.5)
    assert known.auc_doubt == pytest.approx(0)
    assert known.mean[1] == pytest.approx(1 / (1 + np.exp(-1)))
    # The third bucket has no rows: figures are finite.
    assert np.isfinite(known.losses).all()


def test_whoever_counts_ones_alone_knows_zeros_as_well():
    """Errors of measures, against the spread of many draws of noise on the ones."""
    edges, place = cut(10)
    known = BucketScores.of_rows(LOGITS, place, 10)
    rows, ones = np.bincount(place), np.bincount(place, TRUTH)
    ends = np.concatenate([[0.0], 1 / (1 + np.exp(-edges)), [1.0]])

    def drawn(noise):
        return Binary(np.stack([rows - ones - noise, ones + noise], axis=1), 20.0, ends, known, 0.0)

    draws = [drawn(RNG.normal(0, 20.0, 10)) for _ in range(400)]
    for name in ("auc", "log_loss", "accuracy", "base_rate"):
        spread = np.std([getattr(each, name).value for each in draws])
        # The deviation of 400 draws is known to 3.5 %: six of these.
        assert getattr(drawn(np.zeros(10)), name).error == pytest.approx(spread, rel=0.21), name
    assert draws[0].records.error == 0
    unsure = Binary(drawn(np.zeros(10)).counts, 20.0, ends, known, 0.01)
    assert unsure.records.error == pytest.approx(0.01 * len(LOGITS))
    assert unsure.base_rate.error > drawn(np.zeros(10)).base_rate.error
