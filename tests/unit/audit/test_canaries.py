"""The audit on mechanisms whose ε is known: never over it, and not far under it."""

import numpy as np
import pytest

from maskedlark.audit import canaries
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import NotDeclared

TRIALS = 20_000
CONFIDENCE = 0.9999
"""A false alarm is rarer than 1 in 10,000 for each bound."""


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_laplace_noise_is_bounded_from_below_and_never_above(epsilon, seed):
    rng = np.random.default_rng(seed)
    coins = rng.random(TRIALS) < 0.5
    answers = coins + rng.laplace(0, 1 / epsilon, TRIALS)
    found = canaries.lower_bound(coins, answers, CONFIDENCE)
    assert epsilon / 2 < found < epsilon
    halved = canaries.lower_bound(coins, coins + rng.laplace(0, 0.5 / epsilon, TRIALS), CONFIDENCE)
    assert halved > epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_guesses_that_may_be_left_out_bound_the_same(epsilon, seed):
    rng = np.random.default_rng(seed)
    coins = rng.random(TRIALS) < 0.5
    scores = coins - 0.5 + rng.laplace(0, 1 / epsilon, TRIALS)
    assert epsilon / 2 < canaries.signed_lower_bound(coins, scores, CONFIDENCE) < epsilon
    assert canaries.signed_lower_bound(coins, scores, CONFIDENCE, delta=0.8) == 0
    assert canaries.signed_lower_bound(coins, coins - 0.5, CONFIDENCE) > 6
    with pytest.raises(NotDeclared):
        canaries.signed_lower_bound(coins, scores[1:], CONFIDENCE)


@pytest.mark.parametrize("seed", range(20))
def test_answers_without_a_secret_bound_nothing(seed):
    rng = np.random.default_rng(seed)
    coins = rng.random(TRIALS) < 0.5
    assert canaries.lower_bound(coins, rng.normal(size=TRIALS), CONFIDENCE) == 0
    assert canaries.signed_lower_bound(coins, rng.normal(size=TRIALS), CONFIDENCE) == 0


@pytest.mark.parametrize("seed", [2, 27, 32])
def test_a_threshold_is_chosen_by_what_will_judge_it(seed):
    """With less confidence than that, of these seeds one of rare answers is chosen, and little is found."""
    rng = np.random.default_rng(seed)
    coins = rng.random(TRIALS) < 0.5
    answers = coins + rng.laplace(0, 1, TRIALS) + rng.laplace(0, 1, TRIALS)
    assert canaries.lower_bound(coins, answers, CONFIDENCE) > 0.4


def test_an_answer_without_noise_is_seen_at_once():
    coins = np.random.default_rng(1).random(TRIALS) < 0.5
    assert canaries.lower_bound(coins, coins.astype(float), CONFIDENCE) > 5


def test_a_delta_is_granted():
    rng = np.random.default_rng(3)
    coins = rng.random(TRIALS) < 0.5
    answers = np.where(rng.random(TRIALS) < 0.01, coins * 1.0, rng.random(TRIALS) * 0.5 + 0.25)
    assert canaries.lower_bound(coins, answers, CONFIDENCE, delta=0.02) == 0
    assert canaries.lower_bound(coins, answers, CONFIDENCE) > 0


def test_too_few_canaries_are_refused():
    with pytest.raises(NotDeclared):
        canaries.lower_bound(np.array([True, False]), [1, 0], 0.95)


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_gaussian_noise_is_bounded_from_below_and_never_above(noise, seed):
    rng = np.random.default_rng(seed)
    coins = rng.random(TRIALS) < 0.5
    declared = accountant.epsilon([Charge("gaussian", noise, 1)], 1e-5)
    found = canaries.gaussian_lower_bound(coins, coins + rng.normal(0, noise, TRIALS), 0.5, CONFIDENCE, 1e-5)
    assert declared / 2 < found < declared
    answers = coins + rng.normal(0, noise / 2, TRIALS)
    assert canaries.gaussian_lower_bound(coins, answers, 0.5, CONFIDENCE, 1e-5) > declared


@pytest.mark.parametrize("threshold", [-100.0, 0.5, 100.0])
def test_gaussian_answers_without_a_secret_bound_nothing(threshold):
    rng = np.random.default_rng(1)
    coins = rng.random(TRIALS) < 0.5
    found = canaries.gaussian_lower_bound(coins, rng.normal(size=TRIALS), threshold, CONFIDENCE, 1e-5)
    assert found == 0
