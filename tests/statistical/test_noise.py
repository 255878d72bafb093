"""Noise has its exact law, at every scale; and no answer refutes a secret.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import math

import numpy as np
import pytest
from scipy import stats

from maskedlark.dp import mechanisms
from maskedlark.dp.gaussian import Gaussian
from maskedlark.dp.mechanisms import Sensitivity

DRAWS = 400_000
FALSE_ALARM = 1e-6
"""For each p-value below; about fifty are computed."""
ONE = Sensitivity(1, 1.0)
WIDE = Sensitivity(1 << 45, 2.0**45)
HUGE = Sensitivity(1 << 56, 2.0**56)


def seed(number):
    return number.to_bytes(32, "big")


def laplace(scale, count=DRAWS, number=1):
    return mechanisms.draw("laplace", scale, ONE, seed(number), count)


def fit(drawn, law):
    """Chi-square's p-value of rounded draws of a continuous law, in up to 200 cells."""
    cells = np.unique(np.rint(law.ppf(np.linspace(0, 1, 201)[1:-1])))
    chances = np.diff(np.concatenate([[0.0], law.cdf(cells + 0.5), [1.0]]))
    counts = np.bincount(np.searchsorted(cells, drawn), minlength=len(chances))
    assert (chances * len(drawn) >= 20).all()
    return stats.chisquare(counts, chances * len(drawn)).pvalue


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0, 1000.0])
def test_laplace_noise_is_a_rounded_laplace_variable(scale):
    assert fit(laplace(scale), stats.laplace(scale=scale)) > FALSE_ALARM


@pytest.mark.parametrize("scale", [0.5, 3.0, 1000.0])
def test_the_test_sees_noise_that_is_three_percent_too_small(scale):
    assert fit(laplace(scale * 0.97), stats.laplace(scale=scale)) < FALSE_ALARM


@pytest.mark.parametrize("scale", [0.5, 3.0, 1000.0])
def test_the_far_tail_is_as_likely_as_it_should_be(scale):
    drawn = abs(laplace(scale, number=2))
    for times in (3, 6, 9):
        from_here = math.ceil(times * scale)
        chance = math.exp(-(from_here - 0.5) / scale)
        assert stats.binomtest(int((drawn >= from_here).sum()), DRAWS, chance).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_neighbouring_integers_have_the_ratio_e_to_the_rate(scale):
    counts = np.bincount(abs(laplace(scale, number=3)))
    most = 1 / (1 + math.exp(-1 / scale))
    for n in range(1, 5):
        both = int(counts[n] + counts[n + 1])
        assert stats.binomtest(int(counts[n]), both, most).pvalue > FALSE_ALARM


def naive(count):
    """Laplace noise of scale 2^45 as most programs draw it: a logarithm of 53 bits, rounded."""
    rng = np.random.default_rng(7)
    grid = rng.integers(1, 1 << 53, count)
    return np.rint(-WIDE.l2 * np.log(grid * 2.0**-53)).astype(np.int64)


def reachable(magnitude):
    """Whether the naive sampler can draw this at all: one of the few grid points nearby rounds to it."""
    near = np.rint(2.0**53 * np.exp(-magnitude / WIDE.l2)).astype(np.int64)
    grid = np.maximum(near[:, None] + np.arange(-3, 4), 1)
    return (np.rint(-WIDE.l2 * np.log(grid * 2.0**-53)).astype(np.int64) == magnitude[:, None]).any(axis=1)


def far(drawn):
    """The answers to attack: past eight scales, one in 3000."""
    magnitude = np.sort(abs(drawn))[-50:]
    assert magnitude[0] > 8 * WIDE.l1
    return magnitude


def test_the_gap_attack_refutes_nearly_every_wrong_secret_under_naive_noise():
    # The truth is 0. An answer is the noise; a secret s is refuted if the noise cannot be answer - s.
    answers = far(naive(DRAWS))
    assert reachable(answers).all()
    answer = answers[len(answers) // 2]
    refuted = ~reachable(answer - np.arange(1, 392))
    assert refuted.mean() > 0.85


def test_the_gap_attack_learns_nothing_from_our_noise():
    answers = far(mechanisms.draw("laplace", 1.0, WIDE, seed(4), DRAWS))
    truth = reachable(answers)
    # The attack would refute the truth itself, and as often as anything else.
    wrong = reachable((answers[:, None] - np.arange(1, 392)).reshape(-1))
    assert not truth.all()
    assert stats.binomtest(int(truth.sum()), len(truth), wrong.mean()).pvalue > FALSE_ALARM


@pytest.mark.parametrize("modulus", [2, 3, 5, 7, 16, 97])
def test_no_residue_is_missing_from_wide_laplace_noise_nor_from_its_tail(modulus):
    drawn = mechanisms.draw("laplace", 1.0, WIDE, seed(5), DRAWS)
    for part in (drawn, drawn[abs(drawn) > 3 * WIDE.l1]):
        counts = np.bincount(part % modulus, minlength=modulus)
        assert counts.min() > 0
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


def low_bits(drawn):
    """Chi-square's p-value of the lowest four bits."""
    return stats.chisquare(np.bincount(drawn & 15, minlength=16)).pvalue


def test_wide_gaussian_noise_has_uniform_low_bits_and_naive_noise_has_not():
    normal = np.random.default_rng(7).standard_normal(DRAWS)
    assert low_bits(np.rint(normal * HUGE.l2).astype(np.int64)) < FALSE_ALARM
    assert low_bits(mechanisms.draw("gaussian", 1.0, HUGE, seed(6), DRAWS)) > FALSE_ALARM
    assert low_bits(mechanisms.draw("gaussian", 32.0, WIDE, seed(6), DRAWS)) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [0.5, 3.0, 1000.0])
def test_gaussian_noise_is_a_rounded_gaussian_variable(sigma):
    drawn = mechanisms.draw("gaussian", sigma, ONE, seed(7), DRAWS)
    assert fit(drawn, stats.norm(scale=sigma)) > FALSE_ALARM
    assert fit(drawn, stats.norm(scale=sigma * 1.03)) < FALSE_ALARM


@pytest.mark.parametrize("sensitivity", [Sensitivity(1000, 1000.0), WIDE, HUGE])
def test_gaussian_noise_has_its_moments_and_its_whole_distribution(sensitivity):
    law = mechanisms.law("gaussian", 1.0, sensitivity)
    assert isinstance(law, Gaussian)
    drawn = mechanisms.draw("gaussian", 1.0, sensitivity, seed(8), DRAWS) / law.sigma
    assert abs(drawn.mean()) < 5 / math.sqrt(DRAWS)
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / DRAWS)
    assert abs((drawn**4).mean() - 3) < 5 * math.sqrt(96 / DRAWS)
    # Steps of a thousandth of a deviation are invisible at this many draws.
    assert stats.kstest(drawn, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("sensitivity", [ONE, WIDE])
def test_the_deviation_is_as_declared(kind, sensitivity):
    drawn = mechanisms.draw(kind, 2.0, sensitivity, seed(9), DRAWS).astype(float)
    assert drawn.std() / mechanisms.deviation(kind, 2.0, sensitivity) == pytest.approx(1, abs=0.01)
    assert abs(drawn).max() <= mechanisms.tail(kind, 2.0, sensitivity, 1)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_seeds_and_neighbouring_draws_are_independent(kind):
    drawn = [mechanisms.draw(kind, 20.0, ONE, seed(number), DRAWS // 4).astype(float) for number in range(4)]
    bound = 5 / math.sqrt(DRAWS // 4)  # five deviations: one false alarm in a million
    assert abs(np.corrcoef(drawn) - np.eye(4)).max() < bound
    assert abs(np.corrcoef(np.abs(drawn)) - np.eye(4)).max() < bound
    for lag in (1, 2, 1 << 15):
        assert abs(np.corrcoef(drawn[0][lag:], drawn[0][:-lag])[0, 1]) < bound * 2
