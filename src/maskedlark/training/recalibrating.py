"""Probabilities set right after training: intercept and slope from an evaluation's histogram.

Clipped gradients pull probabilities towards the common label, and noise spreads them. Both change the order
of scores little, so a · score + b repairs most of it. It is post-processing of what was released: no more ε.

In every bucket the released ones are held against what a · score + b predicts for its records. Noise and
chance have known variances, and the model as it is has a prior: where noise is large, little is changed.
Run by the ad server.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from maskedlark.errors import BadArguments
from maskedlark.exact.losses import BinaryCrossEntropy, Loss
from maskedlark.exact.network import Network
from maskedlark.training import network as networks
from maskedlark.training.bucket_scores import Floats
from maskedlark.training.metrics import Binary, LabelMeasures
from maskedlark.training.predictor import Predictor

_PRIOR = np.array([2.0, 0.5])
"""The deviations of intercept and slope that are expected before anything is seen."""
_ROUNDS = 50
_LEAST = 0.05
"""Of a slope: an order that was found wrong is not turned round."""
_NEAR = 1e-6
_NO_PROBABILITIES = (
    "probabilities of binary labels are recalibrated, of a model with loss bce; classes and numbers are not"
)


@dataclass(frozen=True)
class Recalibration:
    """slope · score + intercept, of logits."""

    slope: float = 1.0
    intercept: float = 0.0

    def __str__(self) -> str:
        return f"logits times {self.slope:.3g}, {self.intercept:+.3g}"


def check(network: Network, label: int | None = None) -> None:
    """Refuse a model that cannot be recalibrated, on all labels or one: before its evaluation is charged."""
    losses = network.losses if label is None else [network.losses[label]]
    if not are_probabilities(losses):
        raise BadArguments(_NO_PROBABILITIES)
    _intercept(network)


def are_probabilities(losses: Sequence[Loss]) -> bool:
    """Whether all labels are yes or no, so that recalibration helps."""
    return all(isinstance(each, BinaryCrossEntropy) for each in losses)


def of_labels(labels: Sequence[LabelMeasures]) -> list[Recalibration]:
    """One per label. Refuses what has no probabilities."""
    if not all(isinstance(each, Binary) for each in labels):
        raise BadArguments(_NO_PROBABILITIES)
    return [of(each) for each in labels if isinstance(each, Binary)]


def of(label: Binary) -> Recalibration:
    """The most probable intercept and slope, by Newton's method."""
    records, ones = np.clip(label.counts.sum(axis=1), 0, None), label.counts[:, 1]
    mean = np.clip(label.scores.mean, _NEAR, 1 - _NEAR)
    rows = np.stack([np.ones_like(mean), np.log(mean) - np.log1p(-mean)], axis=1)
    start = np.array([0.0, 1.0])
    estimate = start.copy()
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ estimate, -700, 700)))
        bend = _square(rows, records * chance * (1 - chance))
        # Of ones less what is expected: if zeros are released too, their noise counts as well.
        alone = label.total_error is not None
        noise = label.deviation**2 * (1.0 if alone else (1 - chance) ** 2 + chance**2)
        spread = _square(rows, records * chance * (1 - chance) + noise) + _NEAR * np.eye(2)
        missing = rows.T @ (ones - records * chance)
        weighed = bend @ np.linalg.inv(spread)
        prior = np.diag(_PRIOR**-2)
        step = np.linalg.solve(weighed @ bend + prior, weighed @ missing - prior @ (estimate - start))
        estimate = estimate + np.clip(step, -1, 1)
        if float(np.abs(step).max()) < _NEAR:
            break
    return Recalibration(max(float(estimate[1]), _LEAST), float(estimate[0]))


def _square(rows: Floats, weights: Floats | float) -> Floats:
    """Σ w x xᵀ."""
    return np.asarray((rows * np.broadcast_to(weights, (len(rows),))[:, None]).T @ rows)


def _intercept(network: Network) -> str:
    """The name of the last layer's bias."""
    bias = network.layers[-1].linear.bias
    if bias is None:
        raise BadArguments("the last layer has no bias, where an intercept would go: build it with bias=True")
    return bias


def predictor(made: Predictor, by: Sequence[Recalibration]) -> Predictor:
    """A copy whose last layer has every label's slope and intercept."""
    model = copy.deepcopy(made.model)
    first = next(layer for layer in model.modules() if isinstance(layer, torch.nn.Linear))
    network = networks.network(model, networks.losses(made.loss, model), first.in_features)
    last, intercept = network.layers[-1].linear, _intercept(network)
    with torch.no_grad():
        for columns, own in zip(network.columns, by, strict=True):
            weight, bias = model.get_parameter(last.weight), model.get_parameter(intercept)
            (weight.T if last.transposed else weight)[columns].mul_(own.slope)
            bias[columns].mul_(own.slope).add_(own.intercept)
    # A copy too: whoever trains on changes the weights of a run's own model.
    before = made.before or replace(made, model=copy.deepcopy(made.model))
    return Predictor(model, made.loss, made.tag, made.encoder, before)
