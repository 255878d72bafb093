"""Two helpers in memory: what they release is the truth with both helpers' noise, and k is kept."""

import numpy as np
import pytest

from experiments import desks

SETTINGS = """
k = 20
keys = ["channel"]
budget = {epsilon = 1000.0, delta = 0.0}
values = {visit = [0, 1], spend = [0, 500]}
mechanisms.aggregate = {kind = "laplace", noise_floor = 0.01}
"""
CHANNELS = ["Web"] * 60 + ["Phone"] * 40 + ["Mail"] * 19


@pytest.fixture(scope="module")
def document():
    return desks.document(SETTINGS)


@pytest.fixture(scope="module")
def held(document):
    visits = np.arange(len(CHANNELS)) % 2
    return desks.shared_out(document, {"channel": CHANNELS}, [visits, 100 * visits])


def ask(document, held, seed=0, noise=0.01):
    return desks.ask(document, held, ("visit", "spend"), ("channel",), noise, seed, 0.95)


def test_with_next_to_no_noise_the_truth_comes_out_and_small_groups_do_not(document, held):
    shown = ask(document, held)
    found = {row.group: (row.numbers[0].estimate, row.numbers[1].estimate // 100) for row in shown.rows}
    # Spend has noise of 5 at each helper: far less than the hundred that is divided by, but for its floor.
    assert {group: visits for group, (visits, _) in found.items()} == {("Phone",): 20, ("Web",): 30}
    assert all(abs(spend - visits) <= 1 for visits, spend in found.values())


def test_noise_follows_from_the_seed(document, held):
    first, again, other = (ask(document, held, seed, 2.0).rows for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_ledger_is_charged_for_every_column(document, held):
    assert ask(document, held, noise=2.0).balance.charged_epsilon == pytest.approx(1.0)
