"""Training in memory by the exact engine: what all helpers' shares add up to. Run by figures.

The true label is the only candidate, and its mask is 1. Shares of a mask add up to 1 for the truth and to 0
for every other candidate, and a helper's share of the gradient is linear in its share of the masks: so the
sum over helpers is this one gradient, the same integers. With helpers' seeds, batches and noise are theirs
too, and this run has the weights of a run over HTTP, bit for bit. Without, all helpers' Gaussian noise is one
draw of float32 numbers with the deviation of their sum: the gradient is theirs, and noise is only alike.
"""

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments import clear
from experiments.data import Split
from maskedlark.core import batches, field, local_dp
from maskedlark.core.batches import Rows
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import FeatureNoise, RandomisedResponse
from maskedlark.dp import mechanisms
from maskedlark.exact import device as devices
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import Saturated
from maskedlark.exact.gradient import Records
from maskedlark.exact.layout import StepLayout
from maskedlark.exact.quantise import calibrate, quantise
from maskedlark.functions import weights as wire
from maskedlark.functions.gradient import GradientQuery
from maskedlark.ledger.sessions import noise_seed
from maskedlark.parameters import randomised
from maskedlark.randomness import FixedRandomness
from maskedlark.release.session import body_digest
from maskedlark.training import network as networks

TAG = "m"
_MAX_WEIGHT = 127.0
SAMPLE = 64
"""Rows by which activations get their scale."""


class Seeds(NamedTuple):
    """What batches and noise follow from: in life the helpers', and secret."""

    batches: bytes
    noise: Sequence[bytes] = ()
    """One a helper. Without them all helpers' noise is one draw of the same deviation, which is faster."""
    first: int = 0
    """The slot of the first step."""


class Laplace(NamedTuple):
    """Noise as the authors added it: on every coordinate of the sum, whatever the bound's norm. In floats."""

    scale: float
    helpers: int = 1
    """How many helpers add it."""
    records: int = 1
    """On how many records each adds it: 1 is once, on the sum."""


class Local(NamedTuple):
    """Local differential privacy of whole records, in the browser: labels are unbiased by helpers."""

    feature: float
    """ε of one feature that changes by at most its sensitivity."""
    label: float
    """ε of the label's randomised response."""
    sensitivity: float = 255.0
    """Of a feature, in bytes."""


@dataclass(frozen=True)
class Run:
    """One training: network, clip, batches, noise and descent."""

    sizes: tuple[int, ...]
    clip: Clip
    batch: int
    """Records in a batch: on average, or exactly where batches are shuffled."""
    steps: int
    rate: float
    """The learning rate."""
    seed: int
    """Of the first weights; batches and noise follow it too, unless seeds are given."""
    noise: float | None = None
    """Gaussian, of every helper: a multiplier of the full sensitivity 2ψ, as sessions declare it."""
    helpers: int = 2
    laplace: Laplace | None = None
    local: Local | None = None
    """What browsers did to the records already: helpers undo what randomised response adds on average."""
    shuffled: bool = False
    """Every record once an epoch; else each by itself, with the same chance every step (Poisson)."""
    momentum: float = 0.0

    @property
    def loss(self) -> str:
        """One output is a binary label."""
        return "bce" if self.sizes[-1] == 1 else "softmax"

    def model(self) -> nn.Sequential:
        """Linear layers with ReLU between them, as torch makes them from the seed."""
        torch.manual_seed(self.seed)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(self.sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def seeds(self) -> Seeds:
        """Of a run of our own."""
        return Seeds(hashlib.sha256(f"maskedlark experiments batches {self.seed}".encode()).digest())


def train(
    data: Split, run: Run, seeds: Seeds | None = None, calibrated_on: NDArray[np.uint8] | None = None
) -> nn.Sequential:
    """The trained model. Activations get their scale from rows to train with, unless others are given."""
    model, seeds = run.model(), seeds or run.seeds()
    network = networks.network(model, networks.losses(run.loss, model), run.sizes[0])
    optimiser = torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum)
    floats = np.random.default_rng([run.seed, 1])
    rows_of_scale = sample(data, run) if calibrated_on is None else calibrated_on
    for number, rows in enumerate(_batches(run, seeds, len(data.features))):
        parameters = networks.parameters(network, model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Saturated)  # Borne, as weights beyond reach are.
            activations = calibrate(network, parameters, rows_of_scale)
        weights = quantise(network, parameters, activations)
        asked = GradientQuery(TAG, network, weights, run.clip)
        total = share(asked.step, data.features[rows], data.labels[rows], run.local)
        if seeds.noise:
            total = with_helpers_noise(total, asked, run, seeds, number)
        found = total.astype(np.float64) * 2.0**-asked.step.exponent
        if run.noise is not None and not seeds.noise:
            found += drawn_gaussian(asked, run, floats)
        if run.laplace is not None:
            found += drawn(run.laplace, network.size, floats)
        optimiser.zero_grad()
        networks.fill(network, model, found / (run.batch * (1 if run.local is None else randomised.UNIT)))
        optimiser.step()
        keep_in_reach(model)
    return model


def keep_in_reach(model: nn.Module) -> None:
    """No weight beyond what travels in 8 bits: so much noise is borne, and training goes on."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-_MAX_WEIGHT, _MAX_WEIGHT)


def sample(data: Split, run: Run) -> NDArray[np.uint8]:
    """Some features to train with, which the ad server knows; without labels. With the noise of features."""
    rows = data.features[:SAMPLE]
    if run.local is None:
        return rows
    noise = FeatureNoise(run.local.feature, run.local.sensitivity)
    return local_dp.features(rows, noise, FixedRandomness(b"maskedlark experiments sample"))


def share(
    step: StepLayout, features: NDArray[np.uint8], labels: NDArray[np.int64], local: Local | None = None
) -> NDArray[np.int64]:
    """The sum of clipped gradients, in whole numbers, of labels that are known."""
    candidates, masks = labels[:, None], np.ones((len(labels), 1), np.int64)
    if local is not None:
        candidates, masks = _unbiased(labels, max(2, step.network.losses[0].outputs), local)
    records = Records(features, [candidates], masks)
    return clear.total(step, records)


def _unbiased(labels: NDArray[np.int64], classes: int, local: Local) -> tuple[NDArray[np.int64], FieldArray]:
    """All candidates, and what all helpers' unbiased shares of their masks add up to."""
    a, b = RandomisedResponse(local.label).unbiasing(LabelSpace.categorical(classes))
    taken = round(randomised.UNIT * b / a)
    candidates = np.broadcast_to(np.arange(classes), (len(labels), classes))
    one_hot = (candidates == labels[:, None]).astype(np.int64)
    return candidates, field.from_signed(one_hot * (randomised.UNIT + classes * taken) - taken)


def drawn(law: Laplace, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Floats: so many numbers, each the sum of all helpers' Laplace variables."""
    # A Laplace variable is an exponential one with a random sign, or the difference of two exponential ones;
    # many of those add up to a gamma one.
    total = np.zeros(count, np.float32)
    for _ in range(law.helpers):
        if law.records == 1:
            total += rng.standard_exponential(count, np.float32) * _signs(count, rng)
        else:
            total += rng.standard_gamma(law.records, count, np.float32)
            total -= rng.standard_gamma(law.records, count, np.float32)
    return total * np.float64(law.scale)


def _signs(count: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Fair coins, a bit each: 1 or -1."""
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-count // 8)), np.uint8), count=count)
    return 1 - 2 * bits.view(np.int8)


def accuracy(model: nn.Module, data: Split) -> float:
    """On the rows to test with, in percent. Features are bytes over 256, as helpers take them."""
    with torch.inference_mode():
        outputs = model(devices.tensor(data.test_features, torch.device("cpu")).float() / 256).numpy()
    said = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return 100 * float((said == data.test_labels).mean())


def flat(model: nn.Module) -> NDArray[np.float32]:
    """All weights, to compare two runs by."""
    return np.concatenate([each.detach().numpy().ravel() for each in model.parameters()])


def _batches(run: Run, seeds: Seeds, records: int) -> Iterator[Rows]:
    """One a step, as helpers draw them."""
    if not run.shuffled:
        for number in range(run.steps):
            yield batches.poisson(
                seeds.batches, TAG, seeds.first + number, run.batch / records, records
            ).batch
        return
    epoch = math.ceil(records / run.batch)
    for number in range(run.steps):
        if number % epoch == 0:
            parts = batches.partition(seeds.batches, TAG, seeds.first + number, epoch, records)
        yield np.flatnonzero(parts == number % epoch)


def drawn_gaussian(asked: GradientQuery, run: Run, rng: np.random.Generator) -> NDArray[np.float64]:
    """All helpers' noise in one draw: floats, of the deviation that their whole numbers have together."""
    assert run.noise is not None, "who draws noise knows how much"
    one = mechanisms.deviation("gaussian", run.noise, asked.columns[0].sensitivity)
    drawn = rng.standard_normal(asked.network.size, np.float32)
    return drawn * np.float64(math.sqrt(run.helpers) * one * 2.0**-asked.step.exponent)


def with_helpers_noise(
    total: NDArray[np.int64], asked: GradientQuery, run: Run, seeds: Seeds, number: int
) -> NDArray[np.int64]:
    """Every helper's own draw on it, from its seed, the step and the weights that it answers to."""
    if run.noise is None:
        return total
    noisy, digest = field.from_signed(total), body_digest(wire.encode(asked.weights), ())
    for seed in seeds.noise:
        own = noise_seed(seed, number, digest)
        noise = mechanisms.draw("gaussian", run.noise, asked.columns[0].sensitivity, own, len(total))
        noisy = field.add(noisy, field.from_signed(noise))
    return field.to_signed(noisy)
