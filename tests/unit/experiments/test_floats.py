"""Plain floats: clipped sums against torch's own gradients, one record at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from experiments import floats
from experiments.memory import Laplace, Run
from maskedlark.exact.clip import Clip


def run(outputs, **changes):
    return Run((4, 6, 5, outputs), Clip(0.4), batch=8, steps=200, rate=0.5, seed=3, **changes)


def table(outputs, rows=64):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, (rows, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (0 if outputs == 1 else (x[:, 1] > 0))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bound", [math.inf, 0.4])
def test_sums_are_torchs_clipped_one_by_one(outputs, bound):
    model, (x, y) = run(outputs).model(), table(outputs, 12)
    wanted = [torch.zeros_like(each) for each in model.parameters()]
    clipped = 0
    for row, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        out = model(row[None])
        loss = (
            nn.functional.cross_entropy(out, label[None])
            if outputs > 1
            else (nn.functional.binary_cross_entropy_with_logits(out[:, 0], label[None].float()))
        )
        own = torch.autograd.grad(loss, list(model.parameters()))
        length = float(torch.cat([each.flatten() for each in own]).norm())
        clipped += length > bound
        factor = min(1.0, bound / length)
        wanted = [total + factor * each for total, each in zip(wanted, own, strict=True)]
    layers = [(each.weight, each.bias) for each in model if isinstance(each, nn.Linear)]
    found = floats.sums(layers, torch.from_numpy(x), torch.from_numpy(y), bound)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert bound == math.inf or clipped > 0


def test_it_learns_and_noise_hides():
    x, y = table(1)
    assert floats.accuracy(floats.train(x, y, run(1)), x, y) > 90
    noisy = replace(run(1), laplace=Laplace(1e5))
    assert floats.accuracy(floats.train(x, y, noisy), x, y) < 90


@pytest.mark.parametrize("outputs", [1, 3])
def test_runs_side_by_side_are_those_one_by_one(outputs):
    x, y = table(outputs)
    runs = [replace(run(outputs), seed=seed, steps=20, laplace=Laplace(0.1)) for seed in range(3)]
    together = floats.side_by_side(x, y, runs)
    for own, model in zip(runs, together, strict=True):
        alone = floats.train(x, y, own)
        for one, other in zip(alone.parameters(), model.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
    one, other = (next(model.parameters()) for model in together[:2])
    assert not torch.allclose(one, other, atol=1e-2)
