"""Training in plain float32, for what bytes cannot hold: features as measured, and features with noise.

No engine, no masks. Series that were made here say so in their names. Run by figures.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.memory import Run, drawn

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def train(features: Floats, labels: NDArray[np.int64], run: Run, clipped: bool = True) -> nn.Sequential:
    """As `memory.train`: the same first weights, batches of its own, noise as the authors had it."""
    model, rng = run.model(), np.random.default_rng([run.seed, 2])
    layers = [each for each in model if isinstance(each, nn.Linear)]
    optimiser = torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum)
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    for rows in _shuffled(run, len(features), rng):
        found = sums(layers, x[rows], y[rows], run.clip.psi if clipped else None)
        for parameter, own in zip(model.parameters(), found, strict=True):
            parameter.grad = (own + _noise(run, own, rng)) / run.batch
        optimiser.step()
    return model


def sums(layers: list[nn.Linear], x: Tensor, y: Tensor, bound: float | None) -> list[Tensor]:
    """Σ of every record's gradient, scaled to the bound in L2 where it is longer: weight, bias, a layer."""
    with torch.inference_mode():
        inputs, outputs = [x], layers[0](x)
        for layer in layers[1:]:
            inputs.append(outputs.relu())
            outputs = layer(inputs[-1])
        errors = [_error(outputs, y)]
        for layer, numbers in zip(layers[:0:-1], inputs[:0:-1], strict=True):
            errors.insert(0, (errors[0] @ layer.weight) * (numbers > 0))
        if bound is not None:
            squares = sum((e * e).sum(1) * ((a * a).sum(1) + 1) for e, a in zip(errors, inputs, strict=True))
            assert isinstance(squares, Tensor)
            factor = (bound / squares.sqrt()).clamp(max=1.0)[:, None]
            errors = [error * factor for error in errors]
        both = [(e.T @ a, e.sum(0)) for e, a in zip(errors, inputs, strict=True)]
        return [each.clone() for pair in both for each in pair]


def accuracy(model: nn.Module, features: Floats, labels: NDArray[np.int64]) -> float:
    """In percent."""
    with torch.inference_mode():
        outputs = model(torch.from_numpy(features)).numpy()
    said = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return 100 * float((said == labels).mean())


def _error(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return torch.sigmoid(outputs) - y[:, None]
    error = torch.softmax(outputs, dim=1)
    error[torch.arange(len(y)), y] -= 1.0
    return error


def _noise(run: Run, own: Tensor, rng: np.random.Generator) -> Tensor | float:
    if run.laplace is None:
        return 0.0
    return torch.from_numpy(drawn(run.laplace, own.numel(), rng).astype(np.float32)).view(own.shape)


def _shuffled(run: Run, records: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Every record once an epoch."""
    left: list[NDArray[np.intp]] = []
    for _ in range(run.steps):
        if not left:
            ends = [*range(0, records, run.batch), records]
            order = rng.permutation(records)
            left = [order[start:stop] for start, stop in pairwise(ends)]
        yield torch.from_numpy(left.pop(0))
