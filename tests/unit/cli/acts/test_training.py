import numpy as np
import pytest

from maskedlark.cli.acts.training import auc


@pytest.mark.parametrize("values", [2, 5, 1000])
def test_auc_is_the_share_of_pairs_in_the_right_order(values):
    rng = np.random.default_rng(values)
    labels, scores = rng.integers(0, 2, 60), rng.integers(0, values, 60).astype(float)
    ones, zeros = scores[labels == 1], scores[labels == 0]
    right = (ones[:, None] > zeros).sum() + (ones[:, None] == zeros).sum() / 2
    assert auc(labels, scores) == pytest.approx(right / (len(ones) * len(zeros)))


def test_who_says_the_same_of_everybody_guesses():
    assert auc(np.array([0, 1, 1, 0, 0]), np.zeros(5)) == 0.5
