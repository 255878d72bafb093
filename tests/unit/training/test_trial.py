"""What an optimiser and a scheduler do to noise alone, and what is said of it before anything is charged."""

import pytest
import torch
from torch import nn

from maskedlark.training import trial
from tests.unit.training.cases import FEATURES, model

ROWS = torch.rand(200, FEATURES, generator=torch.Generator().manual_seed(1))


def stepping(lr, scheduler=None, **options):
    def made(of):
        optimizer = torch.optim.SGD(of.parameters(), lr=lr)
        return [optimizer] if scheduler is None else [optimizer, scheduler(optimizer, **options)]

    return made


def moved(found):
    assert found.moved is not None
    return found.moved


def test_noise_moves_scores_as_far_as_is_found():
    """Of SGD over a linear layer it is known: each weight goes lr · deviation · √steps far."""
    layer = nn.Linear(FEATURES, 1)
    before = [each.clone() for each in layer.parameters()]
    found = trial.run(layer, stepping(0.5), 400, 0.1, ROWS)
    length = float((1 + ROWS.square().sum(dim=1)).mean().sqrt())
    # A square of few normal weights: within a factor of 2, but once in a thousand seeds.
    assert 0.5 < moved(found) / (0.5 * 0.1 * 400**0.5 * length) < 2
    assert (found.last_step, found.lr) == (400, 0.5)
    assert all(torch.equal(was, now) for was, now in zip(before, layer.parameters(), strict=True))
    twice = trial.run(layer, stepping(1.0), 400, 0.1, ROWS)
    assert twice.moved == pytest.approx(2 * moved(found), rel=1e-4)
    assert found.lines() == []


def test_a_learning_rate_that_is_too_high_for_the_noise_is_said_with_one_that_is_not():
    found = trial.run(model(), stepping(4.0), 100, 1.0, ROWS)
    (line,) = found.lines()
    assert line.startswith(f"Noise alone would move scores by ± {found.moved:.2g} (logits)")
    lr = float(line.split("lr = ")[1].split(",")[0])
    assert lr == pytest.approx(4.0 / moved(found), rel=0.05)
    layer = nn.Linear(FEATURES, 1)
    wild = trial.run(layer, stepping(4.0), 100, 1.0, ROWS)
    calm = trial.run(layer, stepping(4.0 / moved(wild)), 100, 1.0, ROWS)
    assert calm.moved == pytest.approx(1.0, rel=1e-4)
    assert calm.lines() == []


def test_steps_after_a_schedule_has_ended_are_counted():
    schedule = stepping(0.1, torch.optim.lr_scheduler.PolynomialLR, total_iters=60)
    found = trial.run(model(), schedule, 300, 0.0, None)
    assert (found.last_step, found.moved) == (60, None)
    (line,) = found.lines()
    assert "The learning rate is 0 after 60 of 300 steps" in line
    assert trial.run(model(), schedule, 60, 0.0, None).lines() == []


def test_draws_of_the_caller_stay_as_they_were():
    layer, before = nn.Linear(FEATURES, 1), torch.get_rng_state()
    trial.run(layer, stepping(1.0), 5, 1.0, ROWS)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_would_take_long_is_left_out(monkeypatch):
    monkeypatch.setattr(trial, "MAX_DRAWS", 100)
    found = trial.run(nn.Linear(FEATURES, 1), stepping(1.0), 1000, 1.0, ROWS)
    assert (found.moved, found.last_step) == (None, 1000)
    assert moved(trial.run(nn.Linear(FEATURES, 1), stepping(1.0), 10, 1.0, ROWS)) > 0
