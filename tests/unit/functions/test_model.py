"""Networks on the wire: every layer comes back as it was, and what does not fit is refused."""

import json
from typing import Any

import pytest

from maskedlark.errors import BadArguments
from maskedlark.exact.clip import Norm
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.functions import model
from maskedlark.functions.cells import Cells
from maskedlark.functions.gradient import Gradient
from maskedlark.functions.moments import Moments
from tests.unit.parameters import cases

ACTIVATIONS = [Relu(), Identity(), Sigmoid(), Tanh(), LeakyRelu(3), LeakyRelu(0), Elu(256)]
MIXED = [{"kind": "bytes", "count": 4}, {"kind": "category", "size": 9}]
BINARY = (BinaryCrossEntropy(),)
DOCUMENT = cases.make()


def network(activation=None, losses=BINARY, features=4, dropout=None, **linear):
    outputs = sum(loss.outputs for loss in losses)
    first = Layer(Linear("w0", "b0", features, 3))
    bias = "b1" if linear.get("bias", True) else None
    second = Linear("w1", bias, 3, outputs, linear.get("transposed", False))
    return Network((first, Layer(second, activation or Relu(), dropout)), tuple(losses))


def crossed(made, **clip):
    """As a helper sees it: through JSON."""
    return model.decode(json.loads(model.describe(made, **clip).model_dump_json()))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
@pytest.mark.parametrize("dropout", [None, Dropout(1), Dropout(255)])
def test_every_activation_and_dropout_comes_back(activation, dropout):
    made = network(activation, dropout=dropout)
    assert crossed(made).network == made


@pytest.mark.parametrize(
    "linear", [{"bias": False}, {"transposed": True}, {"bias": False, "transposed": True}]
)
def test_every_linear_layer_comes_back(linear):
    made = network(**linear)
    assert crossed(made).network == made


@pytest.mark.parametrize(
    "losses",
    [
        (BinaryCrossEntropy(),),
        (SquaredError(),),
        (SoftmaxCrossEntropy(2),),
        (SoftmaxCrossEntropy(5), BinaryCrossEntropy(), SquaredError()),
    ],
)
def test_every_loss_comes_back(losses):
    made = network(losses=losses)
    assert crossed(made).network == made


def test_one_layer_is_a_network():
    made = Network((Layer(Linear("w0", None, 4, 1)),), (BinaryCrossEntropy(),))
    assert crossed(made).network == made


def test_the_clip_is_the_declared_bound_with_the_callers_fraction():
    declared = DOCUMENT.models[0]
    norm = Norm.L1 if DOCUMENT.mechanisms["gradient"].kind == "laplace" else Norm.L2
    clip = model.clip(DOCUMENT, declared.tag, 17, 1)
    assert (clip.psi, clip.norm, clip.fraction, clip.depth) == (declared.gradient_bound, norm, 17, 1)


def test_names_do_not_cross_but_places_do():
    made = Network((Layer(Linear("secret.weight", "secret.bias", 4, 1)),), (BinaryCrossEntropy(),))
    described = model.describe(made)
    assert "secret" not in described.model_dump_json()
    assert [entry.name for entry in described.network.parameters] == ["w0", "b0"]
    assert described.network.size == made.size


def given(**changes):
    return json.loads(model.describe(network()).model_dump_json()) | changes


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        given(layers=[]),
        given(features=0),
        given(features="4"),
        given(features=4.5),
        given(features=True),
        given(fraction=0),
        given(fraction=31),
        given(depth=-1),
        given(depth=65),
        given(extra=1),
        given(layers=[{"outputs": 1}] * 65),
        given(layers=[{"outputs": 0}]),
        given(layers=[{"outputs": 1, "dropout": 0}]),
        given(layers=[{"outputs": 1, "dropout": 256}]),
        given(layers=[{"outputs": 1, "activation": "softplus"}]),
        given(layers=[{"outputs": 1, "activation": "leaky_relu"}]),
        given(layers=[{"outputs": 1, "activation": "relu", "slope": 3}]),
        given(layers=[{"outputs": 1, "slope": 3}]),
        given(layers=[{"outputs": 1, "bias": "yes"}]),
        given(losses=[{"kind": "softmax"}]),
        given(losses=[{"kind": "bce", "classes": 2}]),
        given(losses=[{"kind": "hinge"}]),
        given(losses=[{"kind": "softmax", "classes": 4097}]),
        given(losses=[{"kind": "bce"}] * 33),
        given(features=1 << 16, layers=[{"outputs": 65}]),
    ],
)
def test_other_descriptions_are_refused(arguments):
    with pytest.raises(BadArguments):
        model.decode(arguments)


def test_the_largest_network_is_as_large_as_said():
    layers = [{"outputs": 64, "bias": False}]
    losses = [{"kind": "softmax", "classes": 64}]
    assert model.decode(given(features=1 << 16, layers=layers, losses=losses)).network.size == 1 << 22
    with pytest.raises(BadArguments, match="at most 4194304 parameters"):
        model.decode(given(features=1 << 16, layers=[{"outputs": 64}], losses=losses))


@pytest.mark.parametrize(
    "arguments",
    [
        given(layers=[{"outputs": 3}, {"outputs": 1}]),
        given(layers=[{"outputs": 1, "activation": "relu"}]),
        given(layers=[{"outputs": 3}, {"outputs": 2, "activation": "relu"}]),
        given(losses=[{"kind": "softmax", "classes": 2}]),
    ],
)
def test_layers_that_do_not_fit_together_are_refused(arguments):
    with pytest.raises(ModelDoesNotFit):
        model.decode(arguments)


@pytest.mark.parametrize(
    ("made", "tag", "match"),
    [
        (network(features=5), "clicks", "has 4 features, the network takes 5"),
        (network(), "basket", "has 2 features"),
        (network(losses=(BinaryCrossEntropy(), BinaryCrossEntropy())), "clicks", "1 labels, the network 2"),
        (network(features=2), "basket", "declares reals ones"),
        (network(features=2, losses=(SoftmaxCrossEntropy(3),)), "basket", "declares reals ones"),
    ],
)
def test_a_network_that_is_not_the_models_is_refused(made, tag, match):
    with pytest.raises(BadArguments, match=match):
        model.describe(made).check(DOCUMENT, tag)


@pytest.mark.parametrize("columns", [MIXED, MIXED[1:]])
@pytest.mark.parametrize("function", ["gradient", "cells"])
def test_categories_are_refused_for_now(function, columns):
    models = [{**cases.settings()["models"][0], "columns": columns}]
    document = cases.make(models=models, decoys=[], fake_rate=0.0)
    described = model.describe(network()).model_dump(mode="json")
    tables = [{"cells": {"kind": "hash", "features": [0], "count": 2}}]
    asked: dict[str, Any] = {"tag": "clicks", "tables": tables}
    asks: dict[str, Any] = {"gradient": lambda: Gradient().begin(document, "clicks", described)}
    asks["cells"] = lambda: Cells().ask(document, asked)
    with pytest.raises(BadArguments, match="the engine computes on byte features so far"):
        asks[function]()


def test_without_losses_there_is_nothing_to_train():
    mechanisms = cases.settings()["mechanisms"] | {"moments": {"kind": "gaussian", "noise_floor": 0.5}}
    document, described = cases.make(mechanisms=mechanisms), given(losses=[])
    with pytest.raises(BadArguments, match="clicks has 1 labels, the network 0 losses"):
        Gradient().begin(document, "clicks", described)
    asked = {"tag": "clicks", "model": described, "weights": "", "clip": 1.0}
    with pytest.raises(BadArguments, match="clicks has 1 labels, the network 0 losses"):
        Moments().ask(document, asked)


def test_networks_of_the_models_pass():
    model.describe(network()).check(DOCUMENT, "clicks")
    model.describe(network(losses=(SoftmaxCrossEntropy(2),))).check(DOCUMENT, "clicks")
    model.describe(network(features=2, losses=(SquaredError(),))).check(DOCUMENT, "basket")
