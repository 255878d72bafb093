"""ONNX in: a model from any framework as a network of ours and its float parameters. Run by the ad server.

torch writes Gemm with the weight as (outputs, inputs); Keras and scikit-learn write MatMul and Add with the
weight as (inputs, outputs). What does not fit is refused by the name of its node, with what to change. `onnx`
is imported here and in `onnx_graph` and `onnx_shapes` alone: helpers get the network, not the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from maskedlark.exact import onnx_shapes as shapes
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.onnx_graph import Graph, argument, attribute, name_of, optional, refuse
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

_NOT_IN_TABLE = "it is not in the table of operations; replace or drop it"
_ADVICE = {
    "BatchNormalization": "statistics of a batch make one record's gradient depend on others; drop it, "
    "or fold it into the layer before it after training",
    "LayerNormalization": _NOT_IN_TABLE,
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
    graph = Graph(model)
    features, nodes = graph.way(output or graph.output())
    reader = _Reader(graph, losses, features.name, shapes.declared(features))
    for node in nodes:
        reader.take(node)
    return Model(reader.network(), reader.parameters)


class _Reader:
    """Takes the nodes from the features up, one after the other."""

    def __init__(self, graph: Graph, losses: Sequence[Loss], features: str, shape: shapes.Shape) -> None:
        self.parameters: dict[str, NDArray[np.float64]] = {}
        self._graph, self._losses = graph, tuple(losses)
        self._features, self._shape = features, shape
        self._layers: list[Layer] = []
        self._between = _Between()
        self._product: NodeProto | None = None
        """A MatMul that may still get its bias."""
        self._end: NodeProto | None = None
        """A Softmax or a Concat, after which no number may change."""

    def network(self) -> Network:
        """What was read. Nothing but the loss's own Sigmoid may stand above the last layer."""
        between = self._between
        own = isinstance(between.activation, Sigmoid) and self._all(BinaryCrossEntropy)
        if between.node is not None and (between.dropout or not own):
            refuse(between.node, "stands after the last layer; remove it, the loss takes the layer's sums")
        if self._end is not None and self._end.op_type == "Concat" and not own:
            refuse(self._end, "only (1 - p, p) of a Sigmoid p; remove it")
        return Network(tuple(self._layers), self._losses)

    def take(self, node: NodeProto) -> None:
        """Take one node; an activation and a dropout wait for the linear layer above them."""
        if node.op_type in shapes.MOVES:
            before, self._shape = self._shape, shapes.MOVES[node.op_type](self._graph, node, self._shape)
            # A bias added to another shape would be spread over another axis.
            self._product = self._product if self._shape == before else None
            return
        if self._end is not None:
            refuse(node, f"stands after {name_of(self._end)}, where the model ends; remove it")
        if node.op_type == "Add":
            self._add(node)
        elif node.op_type in ("Gemm", "MatMul"):
            self._linear(node)
        elif node.op_type == "Dropout":
            self._between.drop(node, self._ratio(node))
        elif node.op_type in _ACTIVATIONS:
            self._between.activate(node)
        elif node.op_type in ("Softmax", "Concat"):
            self._finish(node)
        else:
            refuse(node, _ADVICE.get(node.op_type, _NOT_IN_TABLE))
        self._product = node if node.op_type == "MatMul" else None

    def _linear(self, node: NodeProto) -> None:
        linear = self._gemm(node) if node.op_type == "Gemm" else self._sized(node, transposed=True)
        between, first = self._between, not self._layers
        if first and between.activation is not None and between.node is not None:
            refuse(between.node, "an activation on the features; features are bytes, start with a Gemm")
        self._shape = shapes.after(linear, node, self._shape, self._features if first else None)
        activation = None if first else between.activation or Identity()
        self._layers.append(Layer(linear, activation, between.dropout))
        self._between = _Between()

    def _gemm(self, node: NodeProto) -> Linear:
        scales = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
        if scales != (1.0, 1.0) or attribute(node, "transA", 0):
            refuse(node, "only alpha = beta = 1 and transA = 0; fold them into the weight")
        linear = self._sized(node, transposed=not attribute(node, "transB", 0))
        bias = optional(node, 2)
        return linear if bias is None else replace(linear, bias=self._bias(node, bias, linear.outputs))

    def _add(self, node: NodeProto) -> None:
        """The bias of the MatMul just below."""
        bias = next((name for name in node.input if self._graph.holds(name)), None)
        if self._product is None or bias is None:
            refuse(node, "is not a MatMul plus a constant; use Gemm")
        below = self._layers[-1]
        linear = replace(below.linear, bias=self._bias(node, bias, below.linear.outputs))
        self._layers[-1] = replace(below, linear=linear)

    def _sized(self, node: NodeProto, *, transposed: bool) -> Linear:
        name = argument(node, 1)
        shape = self._parameter(node, name)
        if len(shape) != 2:
            refuse(node, f"{name} has {len(shape)} dimensions; use 2")
        inputs, outputs = shape if transposed else shape[::-1]
        return Linear(self._graph.behind(name), None, inputs, outputs, transposed)

    def _bias(self, node: NodeProto, name: str, outputs: int) -> str:
        if self._parameter(node, name) not in ((outputs,), (1, outputs)):
            refuse(node, f"{name} is not one number for each of {outputs} outputs; give it that shape")
        return self._graph.behind(name)

    def _parameter(self, node: NodeProto, name: str) -> tuple[int, ...]:
        """Keep a tensor as a parameter, and tell its shape."""
        array = self._graph.constant(node, name)
        if array.dtype.kind in "iubcOSU" or not array.size:
            refuse(node, f"{name} holds {array.size} numbers of {array.dtype}; use floats")
        self.parameters[self._graph.behind(name)] = array.astype(np.float64)
        return array.shape

    def _ratio(self, node: NodeProto) -> float:
        name = optional(node, 1)
        return attribute(node, "ratio", 0.5) if name is None else self._graph.number(node, name)

    def _finish(self, node: NodeProto) -> None:
        """A Softmax that is the one loss's own, or the two probabilities that scikit-learn writes."""
        last = self._shape is not None and len(self._shape) == 2 and attribute(node, "axis", -1) in (-1, 1)
        if not last or len(self._losses) != 1 or not self._layers:
            refuse(node, "at the output alone, over its last axis, for one loss; remove it")
        if node.op_type == "Softmax":
            if not self._all(SoftmaxCrossEntropy) or self._between.node is not None:
                refuse(node, "only on the last layer's sums, for a softmax loss; remove it")
        elif not self._all(BinaryCrossEntropy) or not self._is_both(node):
            refuse(node, "only (1 - p, p) of a binary classifier; remove it")
        self._end = node

    def _is_both(self, node: NodeProto) -> bool:
        """Whether a Concat puts 1 - p before p."""
        if len(node.input) != 2 or (rest := self._graph.made(node.input[0])) is None:
            return False
        return (
            rest.op_type == "Sub"
            and len(rest.input) == 2
            and rest.input[1] == node.input[1]
            and self._graph.holds(rest.input[0])
            and self._graph.number(rest, rest.input[0]) == 1.0
        )

    def _all(self, kind: type[Loss]) -> bool:
        return all(isinstance(loss, kind) for loss in self._losses)


class _Between:
    """What was met since the last linear layer."""

    def __init__(self) -> None:
        self.activation: Activation | None = None
        self.dropout: Dropout | None = None
        self.node: NodeProto | None = None

    def drop(self, node: NodeProto, ratio: float) -> None:
        """At most one dropout, after the activation."""
        if self.dropout is not None:
            refuse(node, "at most one, after the activation; move it")
        if not 0 <= ratio < 1 - 1 / 512:  # A not-a-number fails this too.
            refuse(node, f"drops a part of {ratio}; choose a ratio of 0 … 0.996")
        if k := round(ratio * 256):
            self.dropout, self.node = Dropout(k), node

    def activate(self, node: NodeProto) -> None:
        """At most one activation, before the dropout."""
        if self.node is not None:
            refuse(self.node, f"{node.op_type} comes after it; keep one activation, before the dropout")
        self.activation, self.node = _ACTIVATIONS[node.op_type](node), node


def _slope(node: NodeProto, default: float) -> int:
    """A slope as k / 256."""
    k = round(attribute(node, "alpha", default) * 256)
    if not 0 <= k <= 1024:
        refuse(node, "alpha lies within 0 … 4; lower it")
    return k


_ACTIVATIONS: dict[str, Callable[[NodeProto], Activation]] = {
    "Relu": lambda _: Relu(),
    "LeakyRelu": lambda node: LeakyRelu(_slope(node, 0.01)),
    "Sigmoid": lambda _: Sigmoid(),
    "Tanh": lambda _: Tanh(),
    "Elu": lambda node: Elu(_slope(node, 1.0)),
}
