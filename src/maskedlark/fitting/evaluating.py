"""How good a fitted model is on labels that nobody holds: one more private release. Run by the ad server.

The last layer of the network, which was sent as zeros to fit it, is sent as it was fitted.
"""

from typing import Any

from maskedlark.adserver.client import Client
from maskedlark.errors import BadArguments
from maskedlark.exact.quantise import quantise
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import POISSON
from maskedlark.training import evaluating
from maskedlark.training.evaluating import Evaluated
from maskedlark.training.predictor import check_encoder


def evaluate(client: Client, model: Any, **options: Any) -> Evaluated:  # noqa: ANN401 - or an estimator
    """AUC, log-loss and accuracy, or errors, with error bars, on all records.

    Options are `datasets`, `epsilon` or `noise`, and `buckets`, as those of `client.evaluate`.
    """
    fitted: FittedModel = getattr(model, "model_", model)
    document, _ = client.frozen_to_train(options.get("datasets"))
    declared, network = document.trained(fitted.tag), fitted.phi.network
    check_encoder(declared, fitted.encoder)
    if len(declared.labels) > 1 or fitted.family is POISSON:
        raise BadArguments(
            "only models of one label are evaluated, and no Poisson model, whose scores are logarithms"
        )
    sent, last = fitted.phi.weights, network.layers[-1].linear
    parameters = {
        each.name: sent.values[each.place] * 2.0**-exponent
        for each, exponent in zip(network.parameters, sent.exponents, strict=True)
    }
    assert last.bias is not None, "a map has a constant"
    parameters |= {last.weight: fitted.theta[:, :-1], last.bias: fitted.theta[:, -1]}
    weights = quantise(network, parameters, sent.activations, sent.bits)
    return evaluating.measure(client, fitted.tag, network, weights, **options)
