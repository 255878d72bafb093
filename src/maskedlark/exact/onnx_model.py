"""Reads an ONNX model from any framework as a chain of torch modules, to be trained. Run by the ad server.

torch writes Gemm with the weight as (outputs, inputs); Keras and scikit-learn write MatMul and Add with the
weight as (inputs, outputs); scikit-learn's linear models are one node (`onnx_linear`). Models that do not fit
are refused, naming the node and what to change. Only the files `onnx_*` import `onnx`: helpers get the
network, not the file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import NodeProto
from torch import nn

from maskedlark.exact import onnx_external
from maskedlark.exact import onnx_shapes as shapes
from maskedlark.exact.chain import Chain, slope_units
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.onnx_advice import (
    ADVICE,
    ARITHMETIC,
    BOTH_COMPUTED,
    NEVER,
    NOT_IN_TABLE,
    SCALED,
    TWO_PATHS,
)
from maskedlark.exact.onnx_graph import Graph
from maskedlark.exact.onnx_nodes import argument, attribute, name_of, optional, refuse
from maskedlark.exact.operations import ACTIVATIONS

_ACTIVATIONS = {kind.__name__: kind.module for kind in ACTIVATIONS}
"""The class names are ONNX's."""
_SLOPES = {"LeakyRelu": (0.01,), "Elu": (1.0,)}
"""Defaults of omitted attributes."""


def load(path: Path, losses: Sequence[str], output: str | None = None) -> nn.Sequential:
    """The model in a file, whose weights may be in another one beside it."""
    return read(onnx_external.read_file(path.resolve()), losses, output, path.parent)


def read(
    model: bytes, losses: Sequence[str], output: str | None = None, folder: Path | None = None
) -> nn.Sequential:
    """A model that fits, or an error that names the node. `output` picks one of several outputs.

    Losses: bce, mse or softmax, one per label. A last Sigmoid or Softmax is dropped: the loss includes it.
    `folder`: where weights are that the model keeps in another file.
    """
    graph = Graph(model, folder)
    features, nodes = graph.way(output)
    for node in nodes:
        # Numbers are also picked around a recurrent layer: only a table that is stored is an embedding.
        if node.op_type in NEVER and (node.op_type != "Gather" or graph.holds(argument(node, 0))):
            refuse(node, NEVER[node.op_type])
    reader = _Reader(graph, losses, features)
    for node in nodes:
        reader.read(node)
    return reader.model()


class _Reader:
    """Reads the nodes one by one, from the features on."""

    def __init__(self, graph: Graph, losses: Sequence[str], features: str) -> None:
        self._graph, self._losses, self._features = graph, tuple(losses), features
        self._shapes = shapes.of_records(graph.model, features)
        self._modules: list[tuple[str, nn.Module]] = []
        self._used: set[str] = set()
        self._product: nn.Linear | None = None
        """A MatMul that may still get its bias."""
        self._end: NodeProto | None = None
        """A Softmax or a Concat, after which no number may change."""

    def model(self) -> nn.Sequential:
        """The model read, up to its last linear layer."""
        chain = Chain()
        for name, module in self._modules:
            chain.add(name, module)
        chain.end(set(self._losses) == {"bce"})
        modules = [module for _, module in self._modules]
        return nn.Sequential(*(modules if isinstance(modules[-1], nn.Linear) else modules[:-1]))

    def read(self, node: NodeProto) -> None:
        """Read one node."""
        if node.op_type in shapes.MOVES:
            self._move(node)
            return
        if self._end is not None:
            refuse(node, f"stands after {name_of(self._end)}, where the model ends; remove it")
        product, self._product = self._product, None
        if node.op_type == "Add":
            self._add(node, product)
        elif node.op_type in ("Gemm", "MatMul"):
            self._linear(node)
        elif node.op_type == "Dropout":
            self._dropout(node)
        elif node.op_type in _ACTIVATIONS:
            slopes = [attribute(node, "alpha", default) for default in _SLOPES.get(node.op_type, ())]
            rounded = [slope_units(name_of(node), slope) / 256 for slope in slopes]  # As the engine has them.
            self._modules.append((name_of(node), _ACTIVATIONS[node.op_type](*rounded)))
        elif node.op_type in ("Softmax", "Concat"):
            self._finish(node)
        elif node.op_type in ARITHMETIC and not any(self._graph.holds(name) for name in node.input):
            refuse(node, BOTH_COMPUTED)
        elif node.op_type in ARITHMETIC and not self._modules:
            refuse(node, SCALED)
        else:
            refuse(node, ADVICE.get(node.op_type, NOT_IN_TABLE))

    def _move(self, node: NodeProto) -> None:
        if node.op_type == "Cast" and int(attribute(node, "to", 0)) not in shapes.FLOATS:
            refuse(node, "rounds numbers to another type; cast to floats only, or drop it")
        before, after = self._shapes.get(argument(node, 0)), self._shapes.get(node.output[0])
        if after is None and node.op_type != "ZipMap":
            refuse(node, shapes.MOVES[node.op_type])
        if after != before:  # A bias added in another shape would be broadcast over another axis.
            self._product = None

    def _linear(self, node: NodeProto) -> None:
        gemm, name = node.op_type == "Gemm", argument(node, 1)
        scales = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
        if gemm and (scales != (1.0, 1.0) or attribute(node, "transA", 0)):
            refuse(node, "only alpha = beta = 1 and transA = 0; fold them into the weight")
        weight = self._floats(node, name)
        if weight.ndim != 2:
            refuse(node, f"{name} has {weight.ndim} dimensions; use 2")
        turned = weight if gemm and attribute(node, "transB", 0) else weight.T
        linear = nn.Linear(turned.shape[1], turned.shape[0], bias=False)
        linear.weight = nn.Parameter(torch.tensor(turned, dtype=torch.float32))
        if gemm and (bias := optional(node, 2)) is not None:
            self._add_bias(node, bias, linear)
        shape = self._shapes.get(argument(node, 0), ())
        if len(shape) != 1:
            refuse(node, "takes one row of numbers per record; put a Flatten before it")
        if not self._modules and shape[0] not in (None, linear.in_features):
            declared = f"declares {shape[0]} features, {name} takes {linear.in_features}; make them equal"
            raise ModelDoesNotFit(self._features, declared)
        self._modules.append((name_of(node), linear))
        self._product = None if gemm else linear

    def _add(self, node: NodeProto, product: nn.Linear | None) -> None:
        """Read the bias of the MatMul just before."""
        bias = next((name for name in node.input if self._graph.holds(name)), None)
        if bias is None:
            refuse(node, TWO_PATHS)
        if product is None:
            refuse(node, f"is not a MatMul plus a constant; use Gemm. Before the first layer: {SCALED}")
        self._add_bias(node, bias, product)

    def _add_bias(self, node: NodeProto, name: str, linear: nn.Linear) -> None:
        array, outputs = self._floats(node, name), linear.out_features
        if array.shape not in ((outputs,), (1, outputs)):
            refuse(node, f"{name} is not one number for each of {outputs} outputs; give it that shape")
        linear.bias = nn.Parameter(torch.tensor(array.ravel(), dtype=torch.float32))

    def _floats(self, node: NodeProto, name: str) -> NDArray[Any]:
        array = self._graph.constant(node, name)
        if array.dtype.kind in "iubcOSU" or not array.size:
            refuse(node, f"{name} holds {array.size} numbers of {array.dtype}; use floats")
        if (tensor := self._graph.behind(name)) in self._used:
            raise ModelDoesNotFit(tensor, "is used by two layers; give each layer its own tensor")
        self._used.add(tensor)
        with np.errstate(invalid="ignore"):  # Of a signalling NaN.
            return array.astype(float)

    def _dropout(self, node: NodeProto) -> None:
        name = optional(node, 1)
        ratio = attribute(node, "ratio", 0.5) if name is None else self._graph.number(node, name)
        if not 0 <= ratio < 1 - 1 / 512:  # NaN fails this too.
            refuse(node, f"drops a part of {ratio}; choose a ratio of 0 … 0.996")
        if units := round(ratio * 256):
            self._modules.append((name_of(node), nn.Dropout(units / 256)))

    def _finish(self, node: NodeProto) -> None:
        """Read a final Softmax of the only loss, or the two probabilities that scikit-learn writes."""
        if node.op_type == "Concat" and not self._is_both(node):
            refuse(node, TWO_PATHS)
        row = len(self._shapes.get(node.input[-1], ())) == 1 and attribute(node, "axis", -1) in (-1, 1)
        if not row or len(self._losses) != 1 or not self._modules:
            refuse(node, "at the output alone, over its last axis, for one loss; remove it")
        if node.op_type == "Softmax":
            if self._losses != ("softmax",) or not self._ends_in(nn.Linear):
                refuse(
                    node, 'only on the last layer\'s sums, for loss = "softmax"; name that loss, or remove it'
                )
        elif self._losses != ("bce",) or not self._ends_in(nn.Sigmoid):
            refuse(node, 'the two probabilities of a binary classifier need loss = "bce"; name that loss')
        self._end = node

    def _ends_in(self, kind: type[nn.Module]) -> bool:
        return isinstance(self._modules[-1][1], kind)

    def _is_both(self, node: NodeProto) -> bool:
        """Whether a Concat is (1 - p, p)."""
        rest = self._graph.made(node.input[0]) if len(node.input) == 2 else None
        if rest is None or rest.op_type != "Sub" or list(rest.input[1:]) != [node.input[1]]:
            return False
        return self._graph.holds(rest.input[0]) and self._graph.number(rest, rest.input[0]) == 1.0
