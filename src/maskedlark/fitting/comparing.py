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
from maskedlark.fitting import glm, maps
from maskedlark.fitting.asking import FRACTION, arguments, fitted_to_field, real_rows
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.maps import Bytes, Floats
from maskedlark.functions import weights
from maskedlark.functions.moments import Moments
from maskedlark.training.public_rows import encoded, fake_rate, first_noise

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
    """Standard errors by the helpers' noise."""
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
    rows = encoded(X, fitted.encoder, fitted.phi.network.features)
    scores = np.concatenate([each.model_.scores(rows) for each in models], axis=1)
    phi, weight, bias = _extended(models, rows, scores)
    drawn = first_noise(document, Moments.name, first.tag, noise, epsilon)
    held = client.records(document, digests, first.tag)
    phi = fitted_to_field(document, first.tag, first.label, phi, drawn, held)
    asked = arguments(first.tag, first.label, phi)
    answered: Answered = client.ask(Moments(), asked, datasets, noise, epsilon, reuse=True)
    records = held / (1 + fake_rate(document, first.tag))
    numbers, clips = real_rows(phi, rows)
    clips *= records / len(rows)
    (column,) = answered.tables[0].plan.columns
    deviation = phi.unit * intervals.standard_error(
        answered.kind, answered.noise, column.sensitivity, answered.helpers
    )
    released = answered.tables[0].columns[0][0].reshape(-1, phi.width) * phi.unit
    moments = glm.consistent(fitted.family, released, clips @ numbers)
    # z = back (φ - bias), so that Σ z t is linear in the moments, of which the last is that of the constant.
    back = np.linalg.pinv(weight)
    linear = np.concatenate([back, -(back @ bias)[:, None]], axis=1)
    outputs = len(moments)
    linear = linear.reshape(len(models), outputs, phi.width)
    each = np.split(scores, len(models), axis=1)
    free = np.array([clips @ fitted.family.value(own) for own in each])
    total = clips.sum()
    losses = (free - (linear * moments).sum(axis=(1, 2))) / total
    flat = linear.reshape(len(models), -1) * deviation / total
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    return Comparison(losses, np.linalg.norm(flat, axis=1), apart, answered)


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
