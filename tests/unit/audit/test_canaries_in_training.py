"""The audit of a run, on runs whose noise is known: never over their ε, and not far under it."""

import numpy as np
import pytest
from scipy.stats import norm

from maskedlark.audit import canaries
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.dp.session_charge import sampled_epsilon
from maskedlark.errors import NotDeclared

CANARIES, CONFIDENCE, DELTA = 2000, 0.9999, 1e-5
"""A false alarm is rarer than 1 in 10,000 for each bound."""
RATE, STEPS = 0.25, 16


def run(seed, noise, rate=RATE, steps=STEPS):
    """Sums in units of the sensitivity, with the coins and the batches behind them."""
    rng = np.random.default_rng(seed)
    coins = rng.random(CANARIES) < 0.5
    drawn = rng.random((steps, CANARIES)) < rate
    sums = drawn * (coins - 0.5) + rng.normal(0, noise, (steps, CANARIES)) if noise else drawn * (coins - 0.5)
    return coins, sums, drawn


def unknown(coins, sums, declared, rate=RATE):
    scores = canaries.without_batches(sums, rate, declared)
    return canaries.bound_without_batches(coins, scores, rate, len(sums), declared, DELTA, CONFIDENCE)


def known(coins, sums, drawn, declared):
    scores, batches = canaries.with_batches(sums, drawn), drawn.sum(axis=0)
    return canaries.bound_with_batches(coins, scores, batches, batches.max(), declared, DELTA, CONFIDENCE)


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.7), (1, 1.0)])
def test_batches_that_nobody_knows(seed, noise):
    declared = sampled_epsilon(noise, RATE, STEPS, DELTA)
    coins, sums, _ = run(seed, noise)
    found = unknown(coins, sums, noise)
    assert declared / 2 < found.epsilon < declared
    assert noise < found.noise < 2 * noise
    coins, sums, _ = run(seed, noise / 2)
    assert unknown(coins, sums, noise).epsilon > declared


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_batches_that_are_known(seed, noise):
    coins, sums, drawn = run(seed, noise)
    declared = accountant.epsilon([Charge("gaussian", noise, int(drawn.sum(axis=0).max()))], DELTA)
    found = known(coins, sums, drawn, noise)
    assert declared / 2 < found.epsilon < declared
    coins, sums, drawn = run(seed, noise / 2)
    assert known(coins, sums, drawn, noise).epsilon > declared


def test_at_rate_1_both_attackers_are_one():
    coins, sums, drawn = run(0, 3.0, rate=1.0)
    left, right = unknown(coins, sums, 3.0, rate=1.0), known(coins, sums, drawn, 3.0)
    assert left.noise == pytest.approx(right.noise, rel=1e-4)
    assert left.epsilon == pytest.approx(right.epsilon, rel=1e-3)


def test_without_noise_all_that_is_searched_is_refuted():
    coins, sums, drawn = run(0, 0.0)
    found = known(coins, sums, drawn, 1.0)
    assert found.noise < 0.5
    assert found.epsilon > 20


@pytest.mark.parametrize("seed", range(20))
def test_sums_without_a_canary_bound_nothing(seed):
    rng = np.random.default_rng(seed)
    coins, sums = rng.random(CANARIES) < 0.5, rng.normal(size=(STEPS, CANARIES))
    drawn = rng.random((STEPS, CANARIES)) < RATE
    assert known(coins, sums, drawn, 1.0).epsilon == 0


def test_no_advantage_is_allowed_beyond_what_the_noise_leaves():
    assert canaries.max_advantage(1.0, 1.0, 1) == pytest.approx(0.38292, abs=1e-4)  # 2 Φ(1/2) - 1
    assert canaries.max_advantage(1.0, 0.1, 1) == pytest.approx(0.038292, abs=1e-3)


def test_a_canary_in_many_batches_is_judged_by_some_of_them():
    coins, sums, drawn = run(0, 0.5, rate=0.9)
    assert known(coins, sums, drawn, 0.5).noise > 0.7, "all are guessed right"
    some, largest = canaries.first_batches(drawn, 1), int(drawn.sum(axis=0).max())
    assert (some.sum(axis=0) <= 1).all()
    assert (some <= drawn).all()
    scores, batches = canaries.with_batches(sums, some), some.sum(axis=0)
    found = canaries.bound_with_batches(coins, scores, batches, largest, 0.5, DELTA, CONFIDENCE)
    assert 0.5 < found.noise < 0.65


@pytest.mark.parametrize("noise", [0.5, 0.6, 1.0, 3.0])
def test_judged_batches_leave_some_guesses_wrong(noise):
    found = norm.cdf(canaries.telling_batches(noise) ** 0.5 / (2 * noise))
    assert 0.84 < found < 0.93


def test_every_canary_has_a_feature_of_its_own():
    rows = canaries.features(5)
    assert (rows.astype(int) @ rows.T.astype(int) == 255**2 * np.eye(5)).all()


def test_a_score_too_few_is_refused():
    with pytest.raises(NotDeclared):
        known(np.ones(3, bool), np.ones((1, 2)), np.ones((1, 2), bool), 1.0)
