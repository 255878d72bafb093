"""Training through two helpers' shares, all in memory and without noise, against local float training."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import Records, gradient, lift
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import calibrate, quantise
from maskedlark.randomness import FixedRandomness
from maskedlark.training.precision import choose
from tests.unit.exact.models import dense, float_gradient, random_parameters
from tests.unit.training.cases import TAG, document

MNIST = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "mnist"

Floats = dict[str, NDArray[np.float64]]
Step = Callable[[Floats, NDArray[np.intp]], NDArray[np.float64]]


def masked_step(network: Network, space: LabelSpace, x: np.ndarray, y: np.ndarray, clip: Clip) -> Step:
    """What browsers send once, two helpers compute, and the ad server adds up."""
    model, secret = Model("tag", (Bytes(x.shape[1]),), (space,)), FixedRandomness(b"masks")
    shown, masks = model.mask([y], np.ones(len(y), bool), secret)
    ids = sharing.random_rows(len(y), sharing.ID_BYTES, secret)
    shares = sharing.split(masks, ids, Purpose.TRAIN, 2, secret)
    both = [shares.explicit, sharing.expand(shares.seeds[0], ids, Purpose.TRAIN, 1, model.secrets())]

    def step(parameters: Floats, batch: NDArray[np.intp]) -> NDArray[np.float64]:
        weights = quantise(network, parameters, calibrate(network, parameters, x[:256]))
        answers = [
            gradient(network, weights, Records(x[batch], [shown[0][batch]], own[batch]), clip) for own in both
        ]
        return lift(network, weights, clip, sharing.combine(answers))

    return step


def float_step(network: Network, x: np.ndarray, y: np.ndarray, clip: Clip) -> Step:
    return lambda parameters, batch: float_gradient(network, parameters, x[batch], y[batch], clip)


def train(
    network: Network, step: Step, records: int, *, epochs: int, batch: int, rate: float, seed: int
) -> Floats:
    """Gradient descent with momentum; the same batches for every step function."""
    start, rng = random_parameters(network, seed), np.random.default_rng(seed + 1)
    theta = np.concatenate([start[entry.name].ravel() for entry in network.parameters])
    moving = np.zeros_like(theta)
    for _ in range(epochs):
        order = rng.permutation(records)
        for first in range(0, records, batch):
            chosen = order[first : first + batch]
            moving = 0.9 * moving + step(by_name(network, theta), chosen) / len(chosen)
            theta = theta - rate * moving
    return by_name(network, theta)


def by_name(network: Network, flat: NDArray[np.float64]) -> Floats:
    return {entry.name: flat[entry.place].reshape(entry.shape) for entry in network.parameters}


def logits(network: Network, parameters: Floats, features: np.ndarray) -> np.ndarray:
    a = features / 256
    for k in range(len(network.layers)):
        a = a @ parameters[f"w{k}"].T + parameters[f"b{k}"]
        a = np.maximum(a, 0) if k < len(network.layers) - 1 else a
    return a


def wbcd() -> tuple[np.ndarray, np.ndarray]:
    data = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    low, high = data.data[:500].min(axis=0), data.data[:500].max(axis=0)
    scaled = np.clip((data.data - low) / (high - low) * 255, 0, 255).round()
    return scaled.astype(np.uint8), data.target.astype(np.int64)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_wbcd_through_two_helpers_equals_local_training(seed: int) -> None:
    x, y = wbcd()
    network, clip = dense((30, 50, 50, 1), BinaryCrossEntropy()), Clip(1.0)
    steps = [
        masked_step(network, LabelSpace.binary(), x[:500], y[:500], clip),
        float_step(network, x[:500], y[:500], clip),
    ]
    right = []
    for step in steps:
        found = train(network, step, 500, epochs=30, batch=50, rate=0.1, seed=seed)
        right.append(int(((logits(network, found, x[500:])[:, 0] > 0) == y[500:]).sum()))
    assert right[0] >= 62
    assert abs(right[0] - right[1]) <= 1


def log_losses(network: Network, step: Step, x: np.ndarray, y: np.ndarray, batches: int) -> np.ndarray:
    """The mean log-loss over all records before each step of gradient descent."""
    start, found, rng = random_parameters(network, 3), [], np.random.default_rng(4)
    theta = np.concatenate([start[entry.name].ravel() for entry in network.parameters])
    for _ in range(batches):
        parameters = by_name(network, theta)
        z = logits(network, parameters, x)[:, 0]
        found.append(float(np.mean(np.logaddexp(0, z) - y * z)))
        chosen = rng.choice(len(x), 200, replace=False)
        theta = theta - 1.0 * step(parameters, chosen) / len(chosen)
    return np.array(found)


@pytest.mark.parametrize(
    ("records", "fraction", "apart"),
    [(100_000, 19, 0.002), pytest.param(100_000_000, 9, 0.006, marks=pytest.mark.long)],
)
def test_a_wide_network_learns_at_the_planned_precision_as_in_floats(
    records: int, fraction: int, apart: float
) -> None:
    """The fraction is planned for steps of so many records; the run itself takes few."""
    network, rng = dense((100, 128, 64, 1), BinaryCrossEntropy()), np.random.default_rng(5)
    x = np.where(rng.random((2000, 100)) < 0.1, 255, 0).astype(np.uint8)
    y = (x / 256 @ rng.normal(0, 2, 100) > rng.normal(0, 1, 2000)).astype(np.int64)
    declared = {"tag": TAG, "columns": [{"kind": "bytes", "count": 100}], "labels": [{"kind": "binary"}]}
    under = document(models=[{**declared, "gradient_bound": 1.0}])
    clip = choose(under, TAG, network, bits=8, noise=1.0, records=records, fraction=None, depth=None)
    assert clip.fraction == fraction
    curves = [
        log_losses(network, step, x, y, 60)
        for step in (
            masked_step(network, LabelSpace.binary(), x, y, clip),
            float_step(network, x, y, clip),
        )
    ]
    assert curves[1][-1] < curves[1][0] - 0.15
    assert np.abs(curves[0] - curves[1]).max() < apart


def read_mnist(name: str, kind: str, header: int) -> np.ndarray:
    path = MNIST / f"{name}-{kind}-ubyte.gz"
    if not path.exists():
        pytest.skip(f"MNIST is not at {MNIST.name}/ in ../shared/data; put its four files there to run this")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


@pytest.mark.long
def test_mnist_through_two_helpers() -> None:
    x, y = read_mnist("train", "images-idx3", 16).reshape(-1, 784), read_mnist("train", "labels-idx1", 8)
    test, truth = read_mnist("t10k", "images-idx3", 16).reshape(-1, 784), read_mnist("t10k", "labels-idx1", 8)
    network = dense((784, 500, 10), SoftmaxCrossEntropy(10))
    step = masked_step(network, LabelSpace.categorical(10), x[:50000], y[:50000].astype(np.int64), Clip(10.0))
    found = train(network, step, 50000, epochs=15, batch=500, rate=0.2, seed=0)
    accuracy = (logits(network, found, test).argmax(axis=1) == truth).mean()
    assert accuracy >= 0.975, accuracy
