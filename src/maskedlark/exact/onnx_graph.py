"""An ONNX file's nodes, constants, and path from the features to an output. Run by the ad server."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, numpy_helper

from maskedlark.core.suggestions import did_you_mean
from maskedlark.exact import onnx_external, onnx_linear
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.onnx_advice import ADVICE, COLUMNS, NOT_IN_TABLE
from maskedlark.exact.onnx_nodes import argument, refuse
from maskedlark.exact.onnx_shapes import FLOATS

_VALUES = ("value", "value_float", "value_floats", "value_int", "value_ints")
_DOMAINS = {"", "ai.onnx"}


class Graph:
    """One file's nodes and constants, by name."""

    def __init__(self, data: bytes, folder: Path | None = None) -> None:
        try:
            self.model = onnx.load_from_string(data)
        except DecodeError as error:
            raise ModelDoesNotFit("the model", "is not an ONNX file; export it again") from error
        onnx_external.embed(self.model, folder)
        onnx_linear.rewrite(self.model)
        graph = self.model.graph
        self._name = str(graph.name or "the model")
        self._outputs = [str(value.name) for value in graph.output]
        self._numeric = [str(value.name) for value in graph.output if _has_numbers(value)]
        self._constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in graph.initializer}
        self._made = {name: node for node in graph.node for name in node.output}
        self._inputs = {value.name for value in graph.input} - {*self._constants}
        for node in graph.node:
            if node.op_type == "Constant" and (tensor := _held(node)) is not None:
                self._constants[node.output[0]] = tensor

    def way(self, output: str | None) -> tuple[str, list[NodeProto]]:
        """The input that an output comes from, and the nodes between, in order."""
        nodes: list[NodeProto] = []
        name = self._end(output)
        while (node := self._made.get(name)) is not None and len(nodes) <= len(self._made):
            if node.domain not in _DOMAINS and (node.domain, node.op_type) != ("ai.onnx.ml", "ZipMap"):
                refuse(node, ADVICE.get(node.op_type, f"of {node.domain}: {NOT_IN_TABLE}"))
            nodes.append(node)
            name = self._numbers(node)
        if name not in self._inputs:
            raise ModelDoesNotFit(name, "the way back from the output ends here, not at the model's features")
        return name, nodes[::-1]

    def _end(self, output: str | None) -> str:
        """The output to train: the one named, or the only one, or the only one of numbers, not classes."""
        if output is not None and output not in self._outputs:
            raise ModelDoesNotFit(
                self._name, f"has no output {output!r}; {did_you_mean(output, self._outputs)}"
            )
        named = [output] if output is not None else self._outputs
        if len(named) != 1:
            named = self._numeric
        if len(named) != 1 or named[0] not in self._outputs:
            names = ", ".join(self._outputs) or "none"
            if any(self._is_column(each) for each in named):
                raise ModelDoesNotFit(self._name, f"has outputs {names}; {COLUMNS}")
            raise ModelDoesNotFit(self._name, f'has outputs {names}; say which one to train: output = "NAME"')
        return named[0]

    def _is_column(self, output: str) -> bool:
        """Whether it is one of those that `zipmap="columns"` cuts the probabilities into."""
        cut = self._made.get(output)
        if cut is not None and cut.op_type == "Reshape":
            cut = self._made.get(argument(cut, 0))
        return cut is not None and cut.op_type == "Slice"

    def _numbers(self, node: NodeProto) -> str:
        """The node's input that depends on the records."""
        if node.op_type == "Concat" and node.input:
            return str(node.input[-1])
        return next((str(name) for name in node.input if name and not self.holds(name)), argument(node, 0))

    def made(self, name: str) -> NodeProto | None:
        """The node that computes a value."""
        return self._made.get(name)

    def holds(self, name: str) -> bool:
        """Whether a value is a constant of the file."""
        return self.behind(name) in self._constants

    def behind(self, name: str) -> str:
        """The tensor behind Identity nodes, which exporters write for shared or renamed parameters."""
        for _ in self._made:
            node = self._made.get(name)
            if name in self._constants or node is None or node.op_type != "Identity":
                break
            name = argument(node, 0)
        return name

    def constant(self, node: NodeProto, name: str) -> NDArray[Any]:
        """A tensor stored in the file, for a node that needs it."""
        if not self.holds(name):
            refuse(node, f"{name} is computed; make it a constant or a parameter")
        try:
            return numpy_helper.to_array(self._constants[self.behind(name)])
        except (KeyError, TypeError, ValueError) as error:  # KeyError: a type unknown to ONNX.
            raise ModelDoesNotFit(name, "is damaged; export the model again") from error

    def number(self, node: NodeProto, name: str) -> float:
        """A scalar constant."""
        array = self.constant(node, name)
        if array.size != 1:
            refuse(node, f"{name} holds {array.size} numbers; give it one")
        return float(array.item())


def _has_numbers(value: ValueInfoProto) -> bool:
    """Whether an output is of floats, or of what ZipMap makes of them. A classifier's other is of classes."""
    tensor = value.type.tensor_type
    return value.type.HasField("sequence_type") or tensor.elem_type in FLOATS


def _held(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, in any of its numeric forms."""
    for attribute in node.attribute:
        if attribute.name in _VALUES:
            value = onnx.helper.get_attribute_value(attribute)
            return value if isinstance(value, TensorProto) else numpy_helper.from_array(np.array(value))
    return None
