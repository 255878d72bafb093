"""Training in plain float32, for what bytes cannot hold: features as measured, and features with noise.

No engine, no masks. Series that were made here say so in their names. Run by figures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.memory import Run, drawn

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight and bias of each, first layer first."""


def train(features: Floats, labels: Labels, run: Run) -> nn.Sequential:
    """As `memory.train`: the same first weights, batches of its own, noise as the authors had it."""
    (model,) = side_by_side(features, labels, [run])
    return model


def side_by_side(features: Floats, labels: Labels, runs: Sequence[Run]) -> list[nn.Sequential]:
    """Runs that differ in their seeds alone: where a network is small, many take hardly longer than one."""
    alike = replace(runs[0], seed=0, noise=None)
    assert all(replace(run, seed=0) == alike for run in runs), "they differ in seeds, and have no other noise"
    models, rngs = [run.model() for run in runs], [np.random.default_rng([run.seed, 2]) for run in runs]
    numbers = [torch.stack(own).detach() for own in zip(*(each.parameters() for each in models), strict=True)]
    sizes = [each[0].numel() for each in numbers]
    size = sum(sizes)
    optimiser = torch.optim.SGD(numbers, lr=runs[0].rate, momentum=runs[0].momentum)
    x, y, bound = torch.from_numpy(features), torch.from_numpy(labels), runs[0].clip.psi
    batches = [_shuffled(run, len(features), rng) for run, rng in zip(runs, rngs, strict=True)]
    for drawn_rows in zip(*batches, strict=True):
        rows, layers = torch.stack(drawn_rows), list(zip(numbers[::2], numbers[1::2], strict=True))
        found = torch.vmap(sums, (0, 0, 0, None))(layers, x[rows], y[rows], bound)
        noise = torch.stack([_noise(run, size, rng) for run, rng in zip(runs, rngs, strict=True)])
        for number, own, added in zip(numbers, found, torch.split(noise, sizes, dim=1), strict=True):
            number.grad = (own + added.view(own.shape)) / runs[0].batch
        optimiser.step()
    for place, model in enumerate(models):
        flat = torch.cat([each[place].flatten() for each in numbers])
        nn.utils.vector_to_parameters(flat, model.parameters())
    return models


def sums(layers: Layers, x: Tensor, y: Tensor, bound: float) -> list[Tensor]:
    """Σ of every record's gradient, scaled to the bound in L2 where it is longer: weight, bias, a layer."""
    inputs: list[Tensor] = []
    outputs = x
    for weight, bias in layers:
        inputs.append(outputs.relu() if inputs else x)
        outputs = nn.functional.linear(inputs[-1], weight, bias)
    errors = [_error(outputs, y)]
    for (weight, _), numbers in zip(layers[:0:-1], inputs[:0:-1], strict=True):
        errors.insert(0, (errors[0] @ weight) * (numbers > 0))
    squares = sum((e * e).sum(1) * ((a * a).sum(1) + 1) for e, a in zip(errors, inputs, strict=True))
    assert isinstance(squares, Tensor)
    factor = (bound / squares.sqrt()).clamp(max=1.0)[:, None]
    clipped = [error * factor for error in errors]
    return [each for e, a in zip(clipped, inputs, strict=True) for each in (e.T @ a, e.sum(0))]


def accuracy(model: nn.Module, features: Floats, labels: Labels) -> float:
    """In percent."""
    with torch.inference_mode():
        outputs = model(torch.from_numpy(features)).numpy()
    said = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return 100 * float((said == labels).mean())


def _error(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return torch.sigmoid(outputs) - y[:, None]
    return torch.softmax(outputs, dim=1) - nn.functional.one_hot(y, outputs.shape[1])


def _noise(run: Run, size: int, rng: np.random.Generator) -> Tensor:
    """For all numbers of a network."""
    if run.laplace is None:
        return torch.zeros(size)
    return torch.from_numpy(drawn(run.laplace, size, rng).astype(np.float32))


def _shuffled(run: Run, records: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Every record once an epoch."""
    left: list[NDArray[np.intp]] = []
    for _ in range(run.steps):
        if not left:
            ends = [*range(0, records, run.batch), records]
            order = rng.permutation(records)
            left = [order[start:stop] for start, stop in pairwise(ends)]
        yield torch.from_numpy(left.pop(0))
