"""Which of several fitted models is best: one private release for all, and error bars on every difference.

Models that share φ differ by a linear layer, so their scores are one more layer of the same network. One
release of moments of these scores gives Σ z t(y) of every model; the rest of a loss needs no label. Everybody
sees every score, so nothing is saved by naming only the best. Run by the ad server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from maskedlark.adserver.combining import Answered
from maskedlark.dp import intervals
from maskedlark.errors import BadArguments
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Identity
from maskedlark.exact.quantise import dequantise, quantise
from maskedlark.fitting import glm, maps, mismatch
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import SOFTMAX, Family, Rows
from maskedlark.fitting.maps import Bytes, Floats
from maskedlark.fitting.moments_request import FRACTION, arguments, fitted_to_field, real_rows
from maskedlark.fitting.threads import alone
from maskedlark.functions import weights
from maskedlark.functions.moments import Moments
from maskedlark.training.predictor import check_encoder
from maskedlark.training.public_rows import asked_rows, first_noise, real_error

_RIDGE = 0.01
"""Of the whitening of scores: models that nearly agree are told apart."""
_QUANTILE = 0.99
"""Of the rows' norms: the few beyond count less."""


class _Estimator(Protocol):
    client: Any
    tag: str
    label: int
    datasets: Sequence[str] | None
    model_: FittedModel


@dataclass(frozen=True, eq=False)
class Comparison:
    """The loss of every model, and how far noise may have moved it."""

    losses: Floats
    """The mean loss of a record: of classes the log-loss, else up to what labels alone add."""
    errors: Floats
    """Standard errors by the helpers' noise, by rows and records that differ, and by rounded labels."""
    difference_errors: Floats
    """(models, models): standard errors of differences, which share most of the noise."""
    answered: Answered

    @property
    def best(self) -> int:
        """The place of the model with the lowest loss."""
        return int(self.losses.argmin())

    def figures(self) -> dict[str, Any]:
        """For programs."""
        return {
            "losses": self.losses.tolist(),
            "errors": self.errors.tolist(),
            "differences": (self.losses - self.losses[self.best]).tolist(),
            "difference_errors": self.difference_errors[self.best].tolist(),
            "best": self.best,
            "epsilon": self.answered.balance.charged_epsilon,
        }

    def __str__(self) -> str:
        lines = []
        for place, (loss, error) in enumerate(zip(self.losses, self.errors, strict=True)):
            more = f"{loss - self.losses[self.best]:+.4f} ± {self.difference_errors[self.best, place]:.4f}"
            behind = "the best" if place == self.best else f"{more} of the best"
            lines.append(f"model {place}: loss {loss:.4f} ± {error:.4f}, {behind}")
        return "\n".join(lines)


def compare(
    models: Sequence[_Estimator],
    X: Any,  # noqa: ANN401, N803 - a table
    *,
    epsilon: float | None = None,
    noise: float | None = None,
    datasets: Sequence[str] | None = None,
) -> Comparison:
    """Compare fitted models on the records of these datasets, whose rows are X: one release, one charge.

    On the datasets that they were fitted to, all losses are a little low; others are fairer.
    """
    first = _checked(models)
    client, fitted = first.client, first.model_
    document, digests = client.frozen_to_train(datasets)
    check_encoder(document.trained(first.tag), fitted.encoder)
    rows = asked_rows(X, fitted.encoder, fitted.phi.network.features)
    with alone():
        scores = np.concatenate([each.model_.scores(rows) for each in models], axis=1)
        phi, weight, bias = _extended(models, rows, scores)
    drawn = first_noise(document, Moments.name, first.tag, noise, epsilon)
    held, rate = client.records(document, digests, first.tag), document.fakes_of(first.tag)
    rounding = document.trained(first.tag).labels[first.label].space().rounding_variance
    phi = fitted_to_field(document, first.tag, first.label, phi, drawn, held)
    asked = arguments(first.tag, first.label, phi)
    answered: Answered = client.ask(Moments(), asked, datasets, noise, epsilon, reuse=True)
    # z = back (φ - bias), so that Σ z t is linear in the moments, of which the last is that of the constant.
    back = np.linalg.pinv(weight)
    linear = np.concatenate([back, -(back @ bias)[:, None]], axis=1)
    records = held / (1 + rate)
    mismatch.warn(len(rows), held, records, stacklevel=2)
    numbers, clips = real_rows(phi, rows)
    counted = Rows(numbers, clips, records / len(rows))
    linear = linear.reshape(len(models), -1, phi.width)
    return _Compared(fitted.family, phi, counted, scores, linear, rate, rounding).by(answered)


@dataclass(frozen=True, eq=False)
class _Compared:
    """What of a comparison needs no label."""

    family: Family
    phi: Representation
    rows: Rows
    scores: Floats
    """(n, models · outputs)."""
    linear: Floats
    """(models, outputs, width): Σ z t of a model from the moments."""
    fake_rate: float
    rounding: float = 0.0
    """The most that browsers' rounding adds to a label's variance."""

    def by(self, answered: Answered) -> Comparison:
        """With what helpers answered."""
        (column,) = answered.tables[0].schema.columns
        deviation = self.phi.unit * intervals.standard_error(
            answered.kind, answered.noise, column.sensitivity, answered.helpers
        )
        released = answered.tables[0].columns[0][0].reshape(-1, self.phi.width) * self.phi.unit
        moments = glm.consistent(self.family, released, self.rows.weights @ self.rows.phi)
        told, total = (self.linear * moments).sum(axis=(1, 2)), self.rows.weights.sum()
        free = np.stack([self.family.value(each) for each in self._scores], axis=1)
        losses = (self.rows.weights @ free - told) / total
        parts = [self._noise(deviation / total), self._counted(told / total), self._chance(free - losses)]
        if self.rounding:
            parts.append(self.rows.rounding_root(self.scores, self.rounding) / total)
        root = np.concatenate(parts, axis=1)
        apart = np.linalg.norm(root[:, None] - root[None], axis=2)
        return Comparison(losses, np.linalg.norm(root, axis=1), apart, answered)

    @property
    def _scores(self) -> list[Floats]:
        """Of every model."""
        return np.split(self.scores, len(self.linear), axis=1)

    @property
    def _real(self) -> float:
        return self.rows.behind * len(self.rows.phi)

    def _known(self) -> Floats:
        """Of every row and model, what of Σ z t is known: of classes, whose moments add up, the mean z."""
        means = np.stack([each.mean(axis=1) for each in self._scores], axis=1)
        return means if self.family is SOFTMAX else np.zeros_like(means)

    def _noise(self, deviation: float) -> Floats:
        """A root of the losses' covariance, (models, any): by the helpers' noise."""
        linear = self.linear
        if self.family is SOFTMAX:
            linear = linear - linear.mean(axis=1, keepdims=True)
        root: Floats = linear.reshape(len(linear), -1) * deviation
        return root

    def _counted(self, told: Floats) -> Floats:
        """By how many of the records are real."""
        weights = self.rows.weights
        known = weights @ self._known() / weights.sum()
        root: Floats = ((told - known) * real_error(self.fake_rate, self._real))[:, None]
        return root

    def _chance(self, above: Floats) -> Floats:
        """By which of the rows the records are of; `above`: of every row and model, A(z) less the loss."""
        own, clips = len(above), self.rows.clips
        each = (above - self._known()) * (clips / clips.mean())[:, None]
        share = np.sqrt(abs(1 / own - 1 / max(self._real, 1.0)))
        root: Floats = glm.root(np.atleast_2d(np.cov(each.T, bias=True))) * share
        return root


def _checked(models: Sequence[_Estimator]) -> _Estimator:
    if not models or not all(hasattr(each, "model_") for each in models):
        raise BadArguments("compare one fitted model or more: call fit first")
    first, sent = models[0], [weights.encode(each.model_.phi.weights) for each in models]
    for place, other in enumerate(models):
        named = [(each.tag, each.label, each.model_.family.name) for each in (first, other)]
        if named[0] != named[1] or sent[place] != sent[0]:
            raise BadArguments(
                "these models have different maps, labels or families: compare those that were fitted from "
                "one release, such as with another ridge, or give them one map="
            )
    return first


def _extended(
    models: Sequence[_Estimator], rows: Bytes, scores: Floats
) -> tuple[Representation, Floats, Floats]:
    """The network of φ with whitened scores of all models on top; their weight and bias, from scores."""
    phi = models[0].model_.phi
    weight, bias, exponent = maps.whitened(scores, _RIDGE, maps.MAX_WEIGHTS)
    theta = np.concatenate([each.model_.theta for each in models])
    sent, network = phi.weights, phi.network
    known = dequantise(network, sent)
    outputs, width = network.layers[-1].linear.outputs, len(theta)
    layers = (
        *network.layers[:-1],
        Layer(Linear("scores", "centre", phi.width - 1, width), Identity()),
        Layer(Linear("last", "constant", width, outputs), Identity()),
    )
    known |= {"scores": weight @ theta[:, :-1], "centre": weight @ theta[:, -1] + bias}
    known |= {"last": np.zeros((outputs, width)), "constant": np.zeros(outputs)}
    longer = Network(layers, network.losses)
    made = Representation(
        longer, quantise(longer, known, (*sent.activations, exponent), bits=16), 1.0, phi.norm, FRACTION
    )
    norms = maps.lengths(real_rows(made, rows)[0], phi.norm)
    bound = float(f"{np.quantile(norms, _QUANTILE):.3g}")
    return Representation(longer, made.weights, bound, phi.norm, FRACTION), weight, bias
