"""A first layer that centres: what it computes, that it stays, and how little its own gradient counts."""

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.simulate import drafts
from maskedlark.training import centred, gradient_bound
from maskedlark.training.centring import SCALE
from tests.unit.training.cases import FEATURES, document, fit, home, run, table

ROWS = np.random.default_rng(4).integers(60, 200, (500, FEATURES)).astype(np.uint8)


def stacked(rows=ROWS, components=None):
    torch.manual_seed(0)
    first = centred(rows, components)
    return nn.Sequential(first, nn.Linear(first.out_features, 1))


def test_it_takes_the_mean_away_and_adds_a_constant():
    found = centred(ROWS)(torch.from_numpy(ROWS).float() / 256).numpy()
    assert found.shape == (500, FEATURES + 1)
    assert found[:, -1] == pytest.approx(SCALE)
    assert found[:, :-1] == pytest.approx(SCALE * (ROWS / 256 - (ROWS / 256).mean(axis=0)), abs=1e-5)


def test_of_wide_rows_it_takes_what_varies_most():
    found = centred(ROWS, components=2)(torch.from_numpy(ROWS).float() / 256).numpy()
    assert found.shape == (500, 3)
    largest = np.linalg.eigvalsh(np.cov(ROWS.T / 256))[::-1][:2]
    assert (found[:, :2] / SCALE).var(axis=0, ddof=1) == pytest.approx(largest, rel=1e-4)


def test_rows_are_shorter_and_its_own_gradient_hardly_counts():
    model = stacked()
    nn.init.zeros_(model[1].weight)
    alone = gradient_bound(model, "bce", ROWS)
    assert alone / SCALE < 0.9 * drafts.row_length(ROWS)
    # Weights that would move the logit by 1/2 for one standard deviation of every column.
    with torch.no_grad():
        model[1].weight[:, :-1] = torch.from_numpy(0.5 / (SCALE * (ROWS / 256).std(axis=0)))
    assert gradient_bound(model, "bce", ROWS) < 1.1 * alone


def test_a_run_trains_the_rest_and_leaves_it_as_it_is():
    rows = table()[0]
    model = stacked(rows)
    before = [each.detach().clone() for each in model.parameters()]
    training = run(home(document()), model, sample=rows)
    fit(training, torch.optim.SGD(model.parameters(), lr=0.1))
    same = [torch.equal(was, now) for was, now in zip(before, model.parameters(), strict=True)]
    assert same == [True, True, False, False]
    assert training.plan().fixed == (FEATURES + 1) ** 2
    assert training.plan().signal > run(home(document()), stacked(rows).requires_grad_()).plan().signal
