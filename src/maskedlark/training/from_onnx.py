"""A torch model of an ONNX file: the same layers and weights, to be trained on. Run by the ad server."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from maskedlark.exact import onnx_model
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer
from maskedlark.exact.operations import Activation, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.parameters.settings import TrainedModel
from maskedlark.training import network as networks

_UNITS = 256
_MODULES: dict[type[Activation], type[nn.Module]] = {
    Identity: nn.Identity,
    Relu: nn.ReLU,
    Sigmoid: nn.Sigmoid,
    Tanh: nn.Tanh,
}


def module(path: Path, loss: str | Sequence[str], declared: TrainedModel) -> nn.Module:
    """A chain of the file's layers. `declared` says how many classes a softmax has."""
    found = onnx_model.read(path.read_bytes(), _losses(loss, declared))
    modules: list[nn.Module] = []
    for layer in found.network.layers:
        modules.extend(_between(layer))
        modules.append(_linear(layer, found))
    return nn.Sequential(*modules)


def _losses(loss: str | Sequence[str], declared: TrainedModel) -> list[Loss]:
    made: list[Loss] = []
    for name, label in zip(networks.names(loss), declared.labels, strict=False):
        if name == "softmax":
            made.append(SoftmaxCrossEntropy(len(label.space())))
        else:
            made.append(BinaryCrossEntropy() if name == "bce" else SquaredError())
    return made


def _between(layer: Layer) -> list[nn.Module]:
    activation, found = layer.activation, list[nn.Module]()
    if isinstance(activation, LeakyRelu):
        found.append(nn.LeakyReLU(activation.k / _UNITS))
    elif isinstance(activation, Elu):
        found.append(nn.ELU(activation.k / _UNITS))
    elif activation is not None:
        found.append(_MODULES[type(activation)]())
    if layer.dropout is not None:
        found.append(nn.Dropout(layer.dropout.k / _UNITS))
    return found


def _linear(layer: Layer, model: onnx_model.Model) -> nn.Linear:
    linear = layer.linear
    made = nn.Linear(linear.inputs, linear.outputs, linear.bias is not None)
    weight = torch.from_numpy(model.parameters[linear.weight])
    with torch.no_grad():
        made.weight.copy_(weight.T if linear.transposed else weight)
        if linear.bias is not None:
            made.bias.copy_(torch.from_numpy(model.parameters[linear.bias]))
    return made
