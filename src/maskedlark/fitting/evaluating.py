"""How good a fitted model is on labels that nobody holds: one more private release. Run by the ad server.

The last layer of the network, which was sent as zeros to fit it, is sent as it was fitted.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from maskedlark.adserver.client import Client
from maskedlark.errors import BadArguments
from maskedlark.exact.losses import SquaredError
from maskedlark.exact.quantise import dequantise, quantise
from maskedlark.fitting.estimators import Released
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import POISSON
from maskedlark.training import recalibrating
from maskedlark.training.evaluating import Evaluated, Evaluation
from maskedlark.training.predictor import check_encoder
from maskedlark.training.public_rows import asked_rows


class Estimator(Protocol):
    """One that was fitted: `LogisticRegression` and its kin."""

    model_: FittedModel


Model = FittedModel | Estimator


def evaluate(
    client: Client,
    model: Model,
    table: Any = None,  # noqa: ANN401 - any table, or bytes
    *,
    datasets: Sequence[str] | None = None,
    buckets: int | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
) -> Evaluated:
    """AUC, log-loss and accuracy, or errors, with error bars, on all records of `datasets`.

    `table`: the rows that the model was fitted to; with them errors are smaller, and known beforehand. It
    costs ε = 0.5, or at most `epsilon`, or what `noise` costs, and nothing if the very same was asked before.
    Scores are counted in `buckets`, by default as many as have the smallest errors.
    """
    asked = evaluation(client, model, table, datasets=datasets, buckets=buckets, noise=noise, epsilon=epsilon)
    return asked.ask()


def evaluation(
    client: Client,
    model: Model,
    table: Any = None,  # noqa: ANN401 - as above
    *,
    datasets: Sequence[str] | None = None,
    buckets: int | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
) -> Evaluation:
    """The same before it is asked: `plan()` says what it costs and its error bars, and spends nothing."""
    fitted = _fitted(model)
    document, _ = client.frozen_to_train(datasets)
    declared, network = document.trained(fitted.tag), fitted.phi.network
    check_encoder(declared, fitted.encoder)
    if fitted.label >= len(declared.labels):
        raise BadArguments(f"{fitted.tag} has {len(declared.labels)} labels, and the model is of another")
    is_number = isinstance(network.losses[fitted.label], SquaredError)
    if fitted.family is POISSON or fitted.family.is_class == is_number:
        raise BadArguments(
            "no Poisson model is evaluated, whose scores are logarithms, nor one that takes a yes or no for "
            "a number: `maskedlark.fitting.compare` tells their losses"
        )
    sent, last = fitted.phi.weights, network.layers[-1].linear
    assert last.bias is not None, "a map has a constant"
    parameters = dequantise(network, sent)
    # Outputs of other labels stay as they were sent, at 0.
    own = network.columns[fitted.label]
    parameters[last.weight][own], parameters[last.bias][own] = fitted.theta[:, :-1], fitted.theta[:, -1]
    weights = quantise(network, parameters, sent.activations, sent.bits)
    rows = None if table is None else asked_rows(table, fitted.encoder, network.features)
    return Evaluation(
        client, fitted.tag, network, weights, rows, buckets, datasets=datasets, noise=noise, epsilon=epsilon,
        label=fitted.label,
    )  # fmt: skip


def _fitted(model: object) -> FittedModel:
    """The fitted model; of an estimator, what it was fitted to. Refuses anything else."""
    fitted = getattr(model, "model_", model)
    if isinstance(fitted, FittedModel):
        return fitted
    if isinstance(model, Released):
        check_is_fitted(model)
    if isinstance(model, str | Path):
        raise BadArguments(f"{str(model)!r} is a path: give what `maskedlark.fitting.load` returns for it")
    raise BadArguments(
        f"a {type(model).__name__} is no linear model that was fitted: `client.evaluation` and "
        "`client.evaluate` take what was trained by gradients, or on soft labels"
    )


def recalibrated(model: Model, evaluated: Evaluated) -> FittedModel:
    """The model with intercept and slope from its evaluation: post-processing, which costs nothing.

    Errors are NaN, and intervals: noise has moved intercept and slope too, and clear labels have no model
    that was set right by this evaluation. Those of the model as it was fitted are in `before`.
    """
    fitted = _fitted(model)
    (by,) = recalibrating.of_labels(evaluated.labels)
    theta, intercept = fitted.theta * by.slope, fitted.intercept * by.slope + by.intercept
    theta[:, -1] += by.intercept
    return replace(
        fitted,
        theta=theta,
        intercept=intercept,
        coefficients=fitted.coefficients * by.slope,
        errors=np.full_like(fitted.errors, np.nan),
        before=fitted.before or fitted,
    )
