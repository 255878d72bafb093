"""Local noise has its exact distribution, and no output tells neighbours apart better than e^ε.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import local_dp
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import FeatureNoise, RandomisedResponse
from maskedlark.randomness import FixedRandomness
from tests.twins import local_dp as twin

DRAWS = 400_000
FALSE_ALARM = 1e-6
"""For each p-value below; about thirty are computed."""
SIX_SIGMA = 6
"""Six standard deviations: one false alarm in 5 x 10^8."""
COMPARISONS = 2 * 3 * 256
"""Sets of outputs that one pair of neighbours is compared by."""

NOISES = [(1.0, 1.0), (1.0, 10.0), (0.5, 255.0), (8.0, 255.0)]


def noisy_counts(truth, epsilon, sensitivity, seed=b""):
    rng = FixedRandomness(f"{truth} {epsilon} {sensitivity}".encode() + seed)
    drawn = local_dp.features(np.full((DRAWS, 1), truth, np.uint8), FeatureNoise(epsilon, sensitivity), rng)
    return np.bincount(drawn.reshape(-1), minlength=256)


def fit(counts, probabilities):
    """Chi-square's p-value, outputs expected less than 20 times taken together."""
    expected = np.array([float(p) for p in probabilities]) * counts.sum()
    rare = expected < 20
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        # A remainder too small for chi-square joins the least of the others.
        if expected[-1] < 20:
            least = np.argmin(expected[:-1])
            counts[least] += counts[-1]
            expected[least] += expected[-1]
            counts, expected = counts[:-1], expected[:-1]
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES)
@pytest.mark.parametrize("truth", [0, 3, 128, 255])
def test_each_byte_comes_as_often_as_the_twin_says(truth, epsilon, sensitivity):
    assert (
        fit(noisy_counts(truth, epsilon, sensitivity), twin.byte(truth, epsilon, sensitivity)) > FALSE_ALARM
    )


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES)
def test_the_test_sees_noise_that_is_five_percent_too_small(epsilon, sensitivity):
    counts = noisy_counts(128, epsilon * 1.05, sensitivity)
    assert fit(counts, twin.byte(128, epsilon, sensitivity)) < FALSE_ALARM


def evidence(epsilon, sensitivity, used):
    """The least p-value of "no set of outputs is more than e^ε likelier under a neighbour".

    Given how often two neighbours gave an output together, the first's part is binomial: exact, however rare.
    """
    lower = (255 - int(sensitivity)) // 2
    pair = [noisy_counts(byte, used, sensitivity, b"pair") for byte in (lower, lower + int(sensitivity))]
    most = 1 / (1 + np.exp(-epsilon))
    least = 1.0
    for a, b in (pair, pair[::-1]):
        # Outputs from either end on, too: small counts tell little alone.
        for x, y in ((a, b), (a.cumsum(), b.cumsum()), (a[::-1].cumsum(), b[::-1].cumsum())):
            least = min(least, stats.binom.sf(x - 1, x + y, most).min())
    return least


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES)
def test_no_output_is_more_than_e_to_the_epsilon_likelier_under_a_neighbour(epsilon, sensitivity):
    assert evidence(epsilon, sensitivity, used=epsilon) > FALSE_ALARM / COMPARISONS


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES)
def test_the_test_sees_noise_that_is_a_fifth_too_small(epsilon, sensitivity):
    assert evidence(epsilon, sensitivity, used=1.2 * epsilon) < FALSE_ALARM / COMPARISONS


def test_features_and_sources_have_noise_of_their_own():
    rows = np.full((DRAWS // 10, 3), 128, np.uint8)
    drawn = local_dp.features(rows, FeatureNoise(1.0, 10), FixedRandomness(b"apart")).astype(float)
    bound = SIX_SIGMA / np.sqrt(len(rows))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs(stats.pearsonr(drawn[:, a], drawn[:, b]).statistic) < bound
    assert abs(stats.pearsonr(drawn[1:, 0], drawn[:-1, 0]).statistic) < bound


@pytest.mark.parametrize(("size", "epsilon"), [(2, 1.0), (2, 0.1), (5, 2.0), (40, 3.0)])
def test_each_label_comes_as_often_as_the_twin_says(size, epsilon):
    space = LabelSpace.categorical(size)
    for truth in (0, size - 1):
        rng = FixedRandomness(f"{size} {epsilon} {truth}".encode())
        drawn = local_dp.labels(np.full(DRAWS, truth), space, RandomisedResponse(epsilon), rng)
        counts = np.bincount(drawn, minlength=size)
        assert fit(counts, twin.response(truth, size, epsilon)) > FALSE_ALARM
        assert fit(counts, twin.response(truth, size, epsilon * 0.8)) < FALSE_ALARM


def test_corrected_label_counts_are_unbiased():
    space, response = LabelSpace((-1, 0, 5)), RandomisedResponse(0.8)
    truth = np.repeat(space.values, [DRAWS // 10, DRAWS // 2, DRAWS - DRAWS // 10 - DRAWS // 2])
    drawn = local_dp.labels(truth, space, response, FixedRandomness(b"sums"))
    seen, true = (np.bincount(space.index(column), minlength=3).astype(float) for column in (drawn, truth))
    a, b = response.unbiasing(space)
    spread = np.sqrt(DRAWS / 4) / a  # at most: no coin varies more than a fair one
    assert (abs((seen - b * DRAWS) / a - true) < SIX_SIGMA * spread).all()
    assert (abs(seen - true) > SIX_SIGMA * spread).any()
