"""How long gradients can be, against torch's own gradients, one row at a time."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from maskedlark.exact.clip import Norm
from maskedlark.simulate import drafts
from maskedlark.training import gradient_bound, gradient_norms
from maskedlark.training import network as networks

ROWS = np.random.default_rng(2).integers(0, 256, (40, 3)).astype(np.uint8)


def deep(outputs=1, bias=True):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs, bias=bias)).double()


def lengths(model, loss, values=(0, 1), norm=Norm.L2):
    network = networks.network(model, networks.losses(loss, model), 3)
    named = networks.parameters(network, model)
    return gradient_norms._lengths(network, named, ROWS, 0, values, norm)


def slowly(model, of_row, norm=2):
    """The norm of the gradient of a function of the outputs, row by row."""
    found = []
    for row in torch.from_numpy(ROWS).double() / 256:
        model.zero_grad()
        of_row(model(row[None])).backward()
        every = torch.cat([each.grad.ravel() for each in model.parameters()])
        found.append(float(torch.linalg.vector_norm(every, norm)))
    return found


@pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])
@pytest.mark.parametrize("bias", [True, False])
def test_of_a_binary_label_it_is_the_gradient_of_an_error_of_one(norm, bias):
    model = deep(bias=bias)
    found = lengths(model, "bce", norm=norm)
    assert found.shape == (1, 40)
    assert found[0] == pytest.approx(slowly(model, torch.sum, 1 if norm is Norm.L1 else 2))


def test_of_classes_it_is_the_gradient_of_one_that_is_given_no_chance():
    model = deep(outputs=3)
    found = lengths(model, "softmax")
    for place in range(3):

        def of_row(outputs, place=place):
            chance = torch.softmax(outputs, dim=1)[0, place].detach()
            return functional.cross_entropy(outputs, torch.tensor([place])) / (1 - chance)

        assert found[place] == pytest.approx(slowly(model, of_row))


def test_of_numbers_it_is_the_gradient_of_every_value():
    model = deep()
    found = lengths(model, "mse", values=(-2, 3))
    for own, value in zip(found, (-2, 3), strict=True):
        assert own == pytest.approx(slowly(model, lambda out, value=value: ((out - value) ** 2).sum() / 2))


def test_psi_is_the_median_of_these_as_drafts_have_it():
    zero = nn.Linear(3, 1)
    nn.init.zeros_(zero.weight)
    assert gradient_bound(nn.Sequential(zero), "bce", ROWS) == drafts.row_length(ROWS)
    assert gradient_bound(deep(), "bce", ROWS, quantile=1.0) >= lengths(deep(), "bce").max() * 0.95
    several = nn.Sequential(nn.Linear(3, 2))
    # The labels share a bound, each in its part.
    both = gradient_bound(several, ["bce", "bce"], ROWS)
    assert both == pytest.approx(2 * drafts.row_length(ROWS), rel=0.05)
