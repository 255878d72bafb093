"""One node of an ONNX file: its name, inputs and attributes, and how it is refused. Run by the ad server."""

import math
from typing import NoReturn

import onnx
from onnx import NodeProto

from maskedlark.exact.errors import ModelDoesNotFit


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
