"""How good a fitted model is on labels that nobody holds: one more private release. Run by the ad server.

The last layer of the network, which was sent as zeros to fit it, is sent as it was fitted.
"""

from dataclasses import replace
from typing import Any

from maskedlark.adserver.client import Client
from maskedlark.errors import BadArguments
from maskedlark.exact.quantise import dequantise, quantise
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import POISSON
from maskedlark.training import recalibrating
from maskedlark.training.evaluating import Evaluated, Evaluation
from maskedlark.training.predictor import check_encoder
from maskedlark.training.public_rows import encoded


def evaluate(client: Client, model: Any, table: Any = None, **options: Any) -> Evaluated:  # noqa: ANN401
    """AUC, log-loss and accuracy, or errors, with error bars, on all records.

    `table`: the rows that the model was fitted to; with them errors are smaller. Other options are
    `datasets`, `epsilon` (0.5 by default) or `noise`, and `buckets`, as those of `client.evaluate`.
    """
    return evaluation(client, model, table, **options).ask()


def evaluation(client: Client, model: Any, table: Any = None, **options: Any) -> Evaluation:  # noqa: ANN401
    """The same before it is asked: `plan()` says what it costs and its error bars, and spends nothing."""
    fitted: FittedModel = getattr(model, "model_", model)
    document, _ = client.frozen_to_train(options.get("datasets"))
    declared, network = document.trained(fitted.tag), fitted.phi.network
    check_encoder(declared, fitted.encoder)
    if len(declared.labels) > 1 or fitted.family is POISSON:
        raise BadArguments(
            "only models of one label are evaluated, and no Poisson model, whose scores are logarithms"
        )
    sent, last = fitted.phi.weights, network.layers[-1].linear
    assert last.bias is not None, "a map has a constant"
    parameters = dequantise(network, sent)
    parameters |= {last.weight: fitted.theta[:, :-1], last.bias: fitted.theta[:, -1]}
    weights = quantise(network, parameters, sent.activations, sent.bits)
    rows = None if table is None else encoded(table, fitted.encoder, network.features)
    return Evaluation(client, fitted.tag, network, weights, rows, **options)


def recalibrated(model: Any, evaluated: Evaluated) -> FittedModel:  # noqa: ANN401 - or an estimator
    """The model with intercept and slope from its evaluation: post-processing, which costs nothing."""
    fitted: FittedModel = getattr(model, "model_", model)
    (by,) = recalibrating.of_labels(evaluated.labels)
    theta, intercept = fitted.theta * by.slope, fitted.intercept * by.slope + by.intercept
    theta[:, -1] += by.intercept
    return replace(
        fitted,
        theta=theta,
        intercept=intercept,
        coefficients=fitted.coefficients * by.slope,
        errors=fitted.errors * by.slope,
    )
