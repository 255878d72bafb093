"""An ONNX file's nodes, constants, and path from the features to an output. Run by the ad server."""

import math
from typing import Any, NoReturn

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper

from maskedlark.exact.errors import ModelDoesNotFit

_VALUES = ("value", "value_float", "value_floats", "value_int", "value_ints")
_DOMAINS = {"", "ai.onnx"}


class Graph:
    """One file's nodes and constants, by name."""

    def __init__(self, data: bytes) -> None:
        try:
            self.model = onnx.load_from_string(data)
        except DecodeError as error:
            raise ModelDoesNotFit("the model", "is not an ONNX file; export it again") from error
        graph = self.model.graph
        self._name = str(graph.name or "the model")
        self._outputs = [str(value.name) for value in graph.output]
        self._constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in graph.initializer}
        self._made = {name: node for node in graph.node for name in node.output}
        self._inputs = {value.name for value in graph.input} - {*self._constants}
        for node in graph.node:
            if node.op_type == "Constant" and (tensor := _held(node)) is not None:
                self._constants[node.output[0]] = tensor

    def way(self, output: str | None) -> tuple[str, list[NodeProto]]:
        """The input that an output (default: the only one) comes from, and the nodes between, in order."""
        if output is None and len(self._outputs) != 1:
            names = ", ".join(self._outputs) or "none"
            raise ModelDoesNotFit(self._name, f"outputs: {names}; say which one to train")
        nodes: list[NodeProto] = []
        name = output or self._outputs[0]
        while (node := self._made.get(name)) is not None and len(nodes) <= len(self._made):
            if node.domain not in _DOMAINS and (node.domain, node.op_type) != ("ai.onnx.ml", "ZipMap"):
                refuse(node, f"of {node.domain} is not in the table of operations; replace or drop it")
            nodes.append(node)
            name = self._numbers(node)
        if name not in self._inputs:
            raise ModelDoesNotFit(name, "the way back from the output ends here, not at the model's features")
        return name, nodes[::-1]

    def _numbers(self, node: NodeProto) -> str:
        """The node's input that depends on the records."""
        if node.op_type == "Add":
            return next((str(name) for name in node.input if not self.holds(name)), argument(node, 0))
        return str(node.input[-1]) if node.op_type == "Concat" and node.input else argument(node, 0)

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
        tensor = self._constants[self.behind(name)]
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ModelDoesNotFit(name, "is stored in another file; export with external_data=False")
        try:
            return numpy_helper.to_array(tensor)
        except (KeyError, TypeError, ValueError) as error:  # KeyError: a type unknown to ONNX.
            raise ModelDoesNotFit(name, "is damaged; export the model again") from error

    def number(self, node: NodeProto, name: str) -> float:
        """A scalar constant."""
        array = self.constant(node, name)
        if array.size != 1:
            refuse(node, f"{name} holds {array.size} numbers; give it one")
        return float(array.item())


def _held(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, in any of its numeric forms."""
    for attribute in node.attribute:
        if attribute.name in _VALUES:
            value = onnx.helper.get_attribute_value(attribute)
            return value if isinstance(value, TensorProto) else numpy_helper.from_array(np.array(value))
    return None


def refuse(node: NodeProto, change: str) -> NoReturn:
    """Refuse a model, naming the node and what to change."""
    raise ModelDoesNotFit(name_of(node), f"{node.op_type}: {change}")


def name_of(node: NodeProto) -> str:
    """The node's name, or its first output's."""
    return str(node.name or (node.output[0] if node.output else node.op_type))


def argument(node: NodeProto, place: int) -> str:
    """The name of a required input."""
    if len(node.input) <= place or not node.input[place]:
        refuse(node, f"has no input {place}; export the model again")
    return str(node.input[place])


def optional(node: NodeProto, place: int) -> str | None:
    """The name of an optional input."""
    return str(node.input[place]) if len(node.input) > place and node.input[place] else None


def attribute(node: NodeProto, name: str, default: float) -> float:
    """A numeric attribute of the node."""
    entry = next((entry for entry in node.attribute if entry.name == name), None)
    value = default if entry is None else onnx.helper.get_attribute_value(entry)
    if not isinstance(value, int | float) or not math.isfinite(value):
        refuse(node, f"{name} is {value}; make it a finite number")
    return float(value)
