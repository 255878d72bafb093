import numpy as np
import pytest

from maskedlark.cli.demo_steps.training import LEAST, auc, calibration, log_loss


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_auc_is_the_share_of_pairs_in_the_right_order(values):
    rng = np.random.default_rng(values)
    labels, scores = rng.integers(0, 2, 60), rng.integers(0, values, 60).astype(float)
    ones, zeros = scores[labels == 1], scores[labels == 0]
    right = (ones[:, None] > zeros).sum() + (ones[:, None] == zeros).sum() / 2
    assert auc(labels, scores) == pytest.approx(right / (len(ones) * len(zeros)))


def test_who_says_the_same_of_everybody_guesses():
    assert auc(np.array([0, 1, 1, 0, 0]), np.zeros(5)) == 0.5


def test_a_log_loss_is_the_mean_of_what_was_said_of_the_truth():
    found = log_loss(np.array([1, 0]), np.array([0.8, 0.4]))
    assert found == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    assert np.isfinite(log_loss(np.array([1]), np.array([0.0])))


def test_buckets_have_their_own_people_and_those_of_few_are_left_out():
    predicted = np.repeat([0.05, 0.25, 1.0], [LEAST, LEAST - 1, 2 * LEAST])
    labels = np.zeros(len(predicted), int)
    labels[:10], labels[-150:] = 1, 1
    low, high = calibration(labels, predicted)
    assert low.predicted == pytest.approx(0.05)
    assert (low.happened, low.people) == (0.1, LEAST)
    assert low.error == pytest.approx(np.sqrt(0.09 / LEAST))
    assert (high.predicted, high.happened, high.people) == (1.0, 0.75, 2 * LEAST)
