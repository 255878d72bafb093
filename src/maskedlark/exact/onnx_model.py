"""ONNX in: a model from any framework as a network of ours and its float parameters. Run by the ad server.

torch writes Gemm with the weight as (outputs, inputs); Keras and scikit-learn write MatMul and Add with the
weight as (inputs, outputs). What does not fit is refused by the name of its node, with what to change. `onnx`
is imported here alone: helpers get the network, not the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import (
    Activation,
    Dropout,
    Elu,
    Identity,
    LeakyRelu,
    Relu,
    Sigmoid,
    Tanh,
)

_PASSED = {"Identity", "Flatten", "Reshape", "Cast", "Squeeze", "Unsqueeze"}
"""They move no number: a record is one row of bytes before and after."""
_ADVICE = {
    "BatchNormalization": "statistics of a batch make one record's gradient depend on others; drop it, "
    "or fold it into the layer before it after training",
    "LayerNormalization": "it is not in the table of operations; drop it",
    "Conv": "convolution is not in the table of operations; use Gemm",
    "Scaler": "features are bytes and stand for byte / 256; scale them before they become bytes",
    "LinearClassifier": "export the model as MatMul and Add",
    "TreeEnsembleClassifier": "a tree has no gradient; train a network",
}


@dataclass(frozen=True)
class Model:
    """A network and the float parameters that the file holds for it."""

    network: Network
    parameters: dict[str, NDArray[np.float64]]


def read(model: bytes, losses: Sequence[Loss], output: str | None = None) -> Model:
    """A model that fits, or an error that names the node. `output` picks one of several outputs.

    It ends at the logits: a last Sigmoid or Softmax is the loss's own and is left out.
    """
    graph = onnx.load_from_string(model).graph
    reader = _Reader(graph)
    layers = reader.layers(output or _output(graph), losses)
    network = Network(tuple(layers), tuple(losses))
    found = {entry.name: reader.constant(entry.name).astype(np.float64) for entry in network.parameters}
    return Model(network, found)


def _output(graph: GraphProto) -> str:
    names = [value.name for value in graph.output]
    if len(names) != 1:
        raise ModelDoesNotFit(
            graph.name or "the model", f"has outputs {', '.join(names)}; say which one to train"
        )
    return str(names[0])


class _Reader:
    """Walks from an output back to the features, one node after the other."""

    def __init__(self, graph: GraphProto) -> None:
        self._constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in graph.initializer}
        self._made = {name: node for node in graph.node for name in node.output}
        self._inputs = {value.name: value for value in graph.input if value.name not in self._constants}
        for node in graph.node:
            if node.op_type == "Constant":
                self._constants[node.output[0]] = next(e.t for e in node.attribute if e.name == "value")

    def constant(self, name: str) -> NDArray[Any]:
        """A tensor that the file holds, under whatever name."""
        found = self._constants[self._behind(name)]
        if found.data_location == TensorProto.EXTERNAL:
            raise ModelDoesNotFit(name, "is stored in another file; export with external_data=False")
        return numpy_helper.to_array(found)

    def layers(self, output: str, losses: Sequence[Loss]) -> list[Layer]:
        """The layers from the features up, by walking down from the output."""
        found: list[Layer] = []
        name, above = self._logits(output, losses), _Above()
        while (node := self._made.get(name)) is not None:
            name = self._step(node, name, above, found)
        if not found or name not in self._inputs:
            raise ModelDoesNotFit(name, "the way back from the output ends here, not at the model's features")
        _check_input(self._inputs[name], found[0])
        found[0] = replace(found[0], dropout=above.dropout)
        if above.activation is not None:
            raise ModelDoesNotFit(
                above.node, "an activation on the features; features are bytes, start with a Gemm"
            )
        return found

    def _step(self, node: NodeProto, name: str, above: "_Above", found: list[Layer]) -> str:
        """Take one node; its operations wait for the linear layer below them."""
        if node.op_type in _PASSED:
            return str(node.input[0])
        if node.op_type == "Dropout":
            above.drop(node, self._ratio(node))
        elif node.op_type in _ACTIVATIONS:
            above.activate(node)
        elif node.op_type in ("Gemm", "MatMul", "Add"):
            linear, below = self._linear(node, name)
            if found:
                found[0] = replace(found[0], activation=above.activation or Identity(), dropout=above.dropout)
            found.insert(0, Layer(linear))
            above.clear()
            return below
        else:
            advice = _ADVICE.get(node.op_type, "it is not in the table of operations; replace or drop it")
            raise ModelDoesNotFit(_name(node), f"{node.op_type}: {advice}")
        return str(node.input[0])

    def _logits(self, output: str, losses: Sequence[Loss]) -> str:
        """Below a last Sigmoid or Softmax, which the loss computes itself."""
        name = output
        while (node := self._made.get(name)) is not None and node.op_type in _PASSED | {"ZipMap"}:
            name = node.input[0]
        if node is None:
            return name
        own = {"Sigmoid": BinaryCrossEntropy, "Softmax": SoftmaxCrossEntropy}.get(node.op_type)
        if own is not None and all(isinstance(loss, own) for loss in losses):
            return str(node.input[0])
        if node.op_type == "Concat" and all(isinstance(loss, BinaryCrossEntropy) for loss in losses):
            # scikit-learn writes both probabilities of a binary classifier: (1 - p, p).
            return self._logits(node.input[-1], losses)
        return name

    def _linear(self, node: NodeProto, name: str) -> tuple[Linear, str]:
        if node.op_type == "Gemm":
            return self._gemm(node)
        if node.op_type == "MatMul":
            return self._matmul(node, None)
        bias = next((entry for entry in node.input if self._is_constant(entry)), None)
        below = next((entry for entry in node.input if not self._is_constant(entry)), None)
        product = self._made.get(below) if below else None
        if bias is None or product is None or product.op_type != "MatMul":
            raise ModelDoesNotFit(_name(node), f"Add: {name} is not a MatMul plus a constant; use Gemm")
        return self._matmul(product, self._behind(bias))

    def _gemm(self, node: NodeProto) -> tuple[Linear, str]:
        if (
            _attribute(node, "alpha", 1.0) != 1.0
            or _attribute(node, "beta", 1.0) != 1.0
            or _attribute(node, "transA", 0)
        ):
            raise ModelDoesNotFit(
                _name(node), "Gemm: only alpha = beta = 1 and transA = 0; fold them into the weight"
            )
        weight = self._weight(node, node.input[1])
        bias = self._behind(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        return self._sized(node, weight, bias, bool(not _attribute(node, "transB", 0))), str(node.input[0])

    def _matmul(self, node: NodeProto, bias: str | None) -> tuple[Linear, str]:
        return self._sized(node, self._weight(node, node.input[1]), bias, transposed=True), str(node.input[0])

    def _sized(self, node: NodeProto, weight: str, bias: str | None, transposed: bool) -> Linear:
        shape = tuple(self._constants[weight].dims)
        if len(shape) != 2:
            raise ModelDoesNotFit(_name(node), f"{node.op_type}: {weight} has {len(shape)} dimensions; use 2")
        inputs, outputs = shape if transposed else shape[::-1]
        if bias is not None and self.constant(bias).size != outputs:
            raise ModelDoesNotFit(
                _name(node), f"{node.op_type}: {bias} is not one number for each of {outputs} outputs"
            )
        return Linear(weight, bias, inputs, outputs, transposed)

    def _weight(self, node: NodeProto, name: str) -> str:
        if not self._is_constant(name):
            raise ModelDoesNotFit(
                _name(node), f"{node.op_type}: {name} is computed, not a weight; use a parameter"
            )
        return self._behind(name)

    def _behind(self, name: str) -> str:
        """The tensor behind Identity nodes, which exporters write for shared or renamed parameters."""
        while name not in self._constants and (node := self._made.get(name)) and node.op_type == "Identity":
            name = node.input[0]
        return name

    def _is_constant(self, name: str) -> bool:
        return self._behind(name) in self._constants

    def _ratio(self, node: NodeProto) -> float:
        if len(node.input) > 1 and node.input[1]:
            return float(self.constant(node.input[1]))
        return float(_attribute(node, "ratio", 0.5))


class _Above:
    """What was met since the last linear layer, on the way down."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.activation: Activation | None = None
        self.dropout: Dropout | None = None
        self.node = ""

    def drop(self, node: NodeProto, ratio: float) -> None:
        if self.activation is not None or self.dropout is not None:
            raise ModelDoesNotFit(_name(node), "Dropout: at most one, after the activation; move it")
        k = round(ratio * 256)
        if k >= 256:
            raise ModelDoesNotFit(_name(node), "Dropout: drops everything; lower its ratio")
        self.dropout = Dropout(k) if k else None

    def activate(self, node: NodeProto) -> None:
        if self.activation is not None:
            raise ModelDoesNotFit(
                _name(node), f"{node.op_type}: a second activation after it; keep one of them"
            )
        self.activation, self.node = _ACTIVATIONS[node.op_type](node), _name(node)


def _slope(node: NodeProto, default: float) -> int:
    """A slope as k / 256."""
    k = round(_attribute(node, "alpha", default) * 256)
    if not 0 <= k <= 1024:
        raise ModelDoesNotFit(_name(node), f"{node.op_type}: alpha lies within 0 … 4; lower it")
    return k


_ACTIVATIONS: dict[str, Callable[[NodeProto], Activation]] = {
    "Relu": lambda _: Relu(),
    "LeakyRelu": lambda node: LeakyRelu(_slope(node, 0.01)),
    "Sigmoid": lambda _: Sigmoid(),
    "Tanh": lambda _: Tanh(),
    "Elu": lambda node: Elu(_slope(node, 1.0)),
}


def _check_input(value: ValueInfoProto, first: Layer) -> None:
    """Refuse a model whose declared input is not the first layer's."""
    dims = [entry.dim_value for entry in value.type.tensor_type.shape.dim][1:]
    size = int(np.prod([dim for dim in dims if dim])) if dims else 0
    if size and all(dims) and size != first.linear.inputs:
        raise ModelDoesNotFit(
            value.name,
            f"declares {size} features, {first.linear.weight} takes {first.linear.inputs}; make them equal",
        )


def _name(node: NodeProto) -> str:
    return str(node.name or node.output[0])


def _attribute(node: NodeProto, name: str, default: float) -> float:
    for attribute in node.attribute:
        if attribute.name == name:
            return float(onnx.helper.get_attribute_value(attribute))
    return default
