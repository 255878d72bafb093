"""One helper's masked step against the fastest local float step and against Opacus, on one core.

`masked_ms` is a whole step without noise: quantised weights in, field elements out. `local_float_ms` is the
fastest float32 step that clips every record by the layer formula. Opacus clips gradients of single records;
`opacus_ghost_ms` is its way without them. They take turns, so that a slow spell of the machine hits all of
them; medians, in one run and one thread.
"""

import os
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from benches.timing import seconds
from maskedlark.core import field
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import Records, gradient
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Relu
from maskedlark.exact.quantise import quantise

SHAPES = {
    "30-50-50-1": ((30, 50, 50, 1), 500),
    "100-128-64-1": ((100, 128, 64, 1), 1000),
    "784-500-10": ((784, 500, 10), 1000),
}
PSI = 1.0
SECONDS = 10.0
SLOW_MS = 500.0

Parameters = dict[str, NDArray[np.float64]]


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Milliseconds and ratios, keyed by network."""
    threads, cores = torch.get_num_threads(), _one_core()
    torch.set_num_threads(1)
    try:
        return {name: _measure(name, sizes, batch, progress) for name, (sizes, batch) in SHAPES.items()}
    finally:
        torch.set_num_threads(threads)
        if cores:
            os.sched_setaffinity(0, cores)


def _one_core() -> set[int]:
    """Stay on one core; tell which ones there were."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    return cores


def _measure(
    name: str, sizes: tuple[int, ...], batch: int, progress: Callable[[str], None]
) -> dict[str, float]:
    rng = np.random.default_rng(0)
    network = network_of(sizes)
    parameters = {
        entry.name: rng.uniform(-1, 1, entry.shape) / np.sqrt(entry.shape[-1]) for entry in network.parameters
    }
    features = rng.integers(0, 256, (batch, sizes[0])).astype(np.uint8)
    labels = rng.integers(0, max(2, sizes[-1]), batch)
    steps: dict[str, Callable[[], object]] = {
        "masked_ms": _masked(network, parameters, features, max(2, sizes[-1])),
        "local_float_ms": _local(parameters, len(sizes) - 1, features, labels),
        "opacus_ms": _opacus(sizes, parameters, features, labels, "hooks"),
        "opacus_ghost_ms": _opacus(sizes, parameters, features, labels, "ghost"),
    }
    progress(name)
    found = {what: round(ms, 3) for what, ms in _medians_ms(steps).items()}
    found["masked_over_local"] = round(found["masked_ms"] / found["local_float_ms"], 2)
    found["opacus_over_masked"] = round(found["opacus_ms"] / found["masked_ms"], 2)
    return found


def _medians_ms(steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each over many rounds. One that is slow sits out most rounds."""
    times: dict[str, list[float]] = {what: [1000 * seconds(step)] for what, step in steps.items()}
    slow = {what for what, first in times.items() if first[0] > SLOW_MS}
    times = {what: [] for what in steps}
    end, rounds = time.perf_counter() + SECONDS, 0
    while rounds < 3 or time.perf_counter() < end:
        for what, step in steps.items():
            if what not in slow or rounds < 3:
                times[what].append(1000 * seconds(step))
        rounds += 1
    return {what: statistics.median(own) for what, own in times.items()}


def network_of(sizes: tuple[int, ...]) -> Network:
    """Linear layers of these sizes, with ReLU between them, and the loss for the last."""
    loss: Loss = BinaryCrossEntropy() if sizes[-1] == 1 else SoftmaxCrossEntropy(sizes[-1])
    layers = [
        Layer(Linear(f"w{k}", f"b{k}", sizes[k], sizes[k + 1]), Relu() if k else None)
        for k in range(len(sizes) - 1)
    ]
    return Network(tuple(layers), (loss,))


def _masked(
    network: Network, parameters: Parameters, features: NDArray[np.uint8], candidates: int
) -> Callable[[], object]:
    """One helper: all labels are candidates, and its masks are uniform."""
    weights = quantise(network, parameters, (7,) * (len(network.layers) - 1))
    shown = np.tile(np.arange(candidates), (len(features), 1))
    masks = np.random.default_rng(1).integers(0, field.P, shown.shape)
    records, clip = Records(features, [shown], masks), Clip(PSI)
    return lambda: gradient(network, weights, records, clip)


def _local(
    parameters: Parameters, layers: int, features: NDArray[np.uint8], labels: NDArray[np.int64]
) -> Callable[[], object]:
    """Float32: forward, errors back, one norm a record by the layer formula, clipped, summed."""
    weights = [torch.from_numpy(parameters[f"w{k}"]).float() for k in range(layers)]
    biases = [torch.from_numpy(parameters[f"b{k}"]).float() for k in range(layers)]
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    rows, ones = torch.arange(len(y)), y.float()[:, None]

    def step() -> list[torch.Tensor]:
        with torch.inference_mode():
            inputs = [x.float().mul_(1 / 256)]
            for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
                inputs.append(torch.addmm(bias, inputs[-1], weight.T).relu_())
            sums = torch.addmm(biases[-1], inputs[-1], weights[-1].T)
            if sums.shape[1] == 1:
                error = torch.sigmoid(sums).sub_(ones)
            else:
                error = torch.softmax(sums, dim=1)
                error[rows, y] -= 1
            errors = [error]
            for weight, numbers in zip(weights[:0:-1], inputs[:0:-1], strict=True):
                back = errors[-1] * weight if len(weight) == 1 else torch.mm(errors[-1], weight)
                errors.append(torch.ops.aten.threshold_backward(back, numbers, 0))
            power = torch.zeros(len(x))
            for error, numbers in zip(errors, inputs[::-1], strict=True):
                power += _square(error) * _square(numbers).add_(1)
            factor = (PSI / power.sqrt_()).clamp_(max=1)[:, None]
            answers = []
            for error, numbers in zip(errors, inputs[::-1], strict=True):
                error.mul_(factor)
                answers += [torch.mm(error.T, numbers), error.sum(dim=0)]
            return answers

    return step


def _square(numbers: torch.Tensor) -> torch.Tensor:
    """Σx² of every row."""
    norm: torch.Tensor = torch.linalg.vector_norm(numbers, dim=1)
    return norm.square_()


def _opacus(
    sizes: tuple[int, ...],
    parameters: Parameters,
    features: NDArray[np.uint8],
    labels: NDArray[np.int64],
    mode: str,
) -> Callable[[], object]:
    """Opacus with the same clip and no noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import PrivacyEngine  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

        parts: list[torch.nn.Module] = []
        for k in range(len(sizes) - 1):
            parts += [torch.nn.Linear(sizes[k], sizes[k + 1]), torch.nn.ReLU()]
        module = torch.nn.Sequential(*parts[:-1])
        for k, layer in enumerate(parts[::2]):
            layer.load_state_dict(
                {
                    "weight": torch.from_numpy(parameters[f"w{k}"]),
                    "bias": torch.from_numpy(parameters[f"b{k}"]),
                }
            )
        x = torch.from_numpy(features).float() / 256
        y = torch.from_numpy(labels).float()[:, None] if sizes[-1] == 1 else torch.from_numpy(labels)
        loss = torch.nn.BCEWithLogitsLoss() if sizes[-1] == 1 else torch.nn.CrossEntropyLoss()
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
        made = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
            data_loader=loader,
            criterion=loss,
            noise_multiplier=0.0,
            max_grad_norm=PSI,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
    private, optimizer, criterion = made[0], made[1], made[2] if mode == "ghost" else loss

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            criterion(private(x), y).backward()
            optimizer.step()

    return step
