"""Claim 15: canary labels in a run bound both of its figures from below.

One run over n canaries is n trials: each has a coordinate of the gradient of its own. Against the ad server
alone batches are unknown; against it with all helpers but one they are known, and of the noise only the
honest helper's is left. Between the two stands an attacker that nobody is, who has the noise of all helpers
but one and no batches: the first figure holds against it too, and has to be near it.

Every bound is at 99.99 %: it is over the true ε once in 10,000 runs. In memory all seeds are fixed.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from maskedlark.audit import canaries
from maskedlark.audit.canaries import NoiseBound
from maskedlark.cli.audits import auditor
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from tests.statistical import training_run
from tests.statistical.training_in_memory import DELTA, document, helpers_in_memory

CONFIDENCE = 0.9999
BOUND = 0.05
"""ψ: a canary's row is clipped to it, whatever its label, as long as weights are small."""
CANARIES = 2500


@dataclass(frozen=True)
class AuditSettings:
    """A run's batches and noise."""

    rate: float
    steps: int
    noise: float
    judged: int
    """So many batches of each canary are looked at by who knows them: with more, all guesses are right."""


FEW = AuditSettings(0.25, 16, 1.0, 16)
MANY = AuditSettings(0.02, 500, 0.6, 2)
RUNNING = 4000
"""Canaries of the run through helper processes."""


@dataclass(frozen=True)
class Audit:
    """What was found of one run, by attacker."""

    alone: NoiseBound
    no_batches: NoiseBound
    """Nobody: with the noise of all helpers but one, without the batches."""
    coalition: NoiseBound


def audit(plan, coins, seen, told, drawn, helpers=2) -> Audit:
    """`seen`: sums (steps, n) in units of the sensitivity; `told`: of those, what colluders' noise was."""
    left, rate, steps, noise = seen - told, plan.rate, plan.steps, plan.noise
    alone, no_batches = (
        canaries.bound_without_batches(
            coins, canaries.without_batches(sums, rate, deviation), rate, steps, noise, DELTA, CONFIDENCE
        )
        for sums, deviation in ((seen, noise * helpers**0.5), (left, noise))
    )
    some, largest = canaries.first_batches(drawn, plan.judged), int(drawn.sum(axis=0).max())
    known = canaries.bound_with_batches(
        coins, canaries.with_batches(left, some), some.sum(axis=0), largest, noise, DELTA, CONFIDENCE
    )
    return Audit(alone, no_batches, known)


def check_noise(plan, coins, seen, told, drawn) -> None:
    """What is left of a sum without its canaries: as much as declared, and new at every step and helper.

    An attack that adds up would not see noise that comes twice. 7 deviations: fewer than one false alarm in a
    million runs.
    """
    honest = seen - told - drawn * (coins - 0.5)
    assert honest.std() == pytest.approx(plan.noise, rel=7 / np.sqrt(2 * honest.size))
    correlations = np.corrcoef(np.concatenate([honest, told]))
    np.fill_diagonal(correlations, 0)
    assert np.abs(correlations).max() < 7 / np.sqrt(len(coins))


def flat(count: int) -> tuple[Network, Quantised]:
    """One weight a feature, all 0."""
    network = Network((Layer(Linear("w0", None, count, 1)),), (BinaryCrossEntropy(),))
    return network, Quantised(np.zeros(count, np.int16), (0,), ())


def in_memory(world, plan, number):
    network, quantised = flat(CANARIES)
    world.begin(network, Sampling(kind="poisson", rate=plan.rate), plan.steps, plan.noise, number)
    # Label 1 moves a gradient down.
    seen = -np.array([world.step(quantised) for _ in range(plan.steps)]) / (2 * BOUND)
    return seen, -world.noise_of(1) / (2 * BOUND), world.drawn()


def check(found: Audit, charge: SessionCharge) -> None:
    print(found, adserver_epsilon(charge), coalition_epsilon(charge))
    accounted, coalition = adserver_epsilon(charge), coalition_epsilon(charge)
    assert found.alone.epsilon <= found.no_batches.epsilon < accounted
    assert found.coalition.epsilon < coalition
    assert found.no_batches.epsilon >= accounted / 2
    assert found.coalition.epsilon >= coalition / 2
    # Sampling hides something only from who does not know the batches: the audit tells the two apart.
    assert found.coalition.epsilon > accounted


def check_halved(found: Audit, charge: SessionCharge) -> None:
    print("halved", found)
    assert found.no_batches.epsilon > adserver_epsilon(charge)
    assert found.coalition.epsilon > coalition_epsilon(charge)


@pytest.mark.parametrize("plan", [FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def test_a_run_in_memory_is_under_both_figures_and_near_them(tmp_path, monkeypatch, plan):
    coins = FixedRandomness(b"coins").below(2, CANARIES)
    made, rows = document(CANARIES, BOUND, k=1), canaries.features(CANARIES)
    with helpers_in_memory(tmp_path, made, rows, coins, FixedRandomness(b"shares")) as world:
        views, truth = in_memory(world, plan, 0), coins == 1
        charge = world.opened.session_charge
        check_noise(plan, truth, *views)
        check(audit(plan, truth, *views), charge)
        monkeypatch.setattr(mechanisms, "draw", _half(mechanisms.draw))
        check_halved(audit(plan, truth, *in_memory(world, plan, 1)), charge)


@pytest.mark.long
def test_a_run_through_helper_processes_is_under_both_figures_and_near_them(tmp_path, monkeypatch):
    coins = FixedRandomness(b"coins").below(2, RUNNING) == 1
    settings = auditor.SETTINGS.format(features=RUNNING, bound=BOUND)
    with local_cluster(tmp_path, settings, SystemRandomness()) as made:
        training_run.hand_in(made, coins)
        views, charge = over_http(made)
        found = audit(FEW, coins, *views)
        check_noise(FEW, coins, *views)
        check(found, charge)
        assert found.alone.epsilon >= adserver_epsilon(charge) / 3
        for helper in made.helpers:
            helper.process.stop()
            helper.config.write_text(
                'functions = ["tests.statistical.halved_noise"]\n' + helper.config.read_text()
            )
            helper.process.start(PYTHONPATH=str(Path(__file__).parents[2]))
        monkeypatch.setattr(mechanisms, "draw", _half(mechanisms.draw))
        halved = audit(FEW, coins, *over_http(made)[0])
        check_halved(halved, charge)
        assert halved.alone.epsilon > adserver_epsilon(charge)


def over_http(made):
    run = training_run.train(made, RUNNING, FEW.rate, FEW.steps, FEW.noise, DELTA)
    return (run.sums, run.noise_of_helper_1, run.drawn), run.charge


def _half(draw):
    return lambda kind, noise, *rest: draw(kind, noise / 2, *rest)
