"""Nodes that move no number: a record is one row before and after, or the model is refused.

Run by the ad server. A shape is (batch, …), None where the file leaves a size open; None alone where it says
nothing. What could move numbers from one record to another is refused, not guessed.
"""

from collections.abc import Callable
from math import prod

from onnx import NodeProto, ValueInfoProto
from torch import nn

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.onnx_graph import FLOATS, Graph, argument, attribute, optional, refuse

Shape = tuple[int | None, ...] | None


def declared(value: ValueInfoProto) -> Shape:
    """The input's shape. Refuses features that are not floats: a byte here stands for byte / 256."""
    tensor = value.type.tensor_type
    if tensor.elem_type not in FLOATS:
        raise ModelDoesNotFit(value.name, "takes no floats; features are floats, byte / 256")
    if not tensor.HasField("shape"):
        return None
    return tuple(int(dim.dim_value) or None for dim in tensor.shape.dim)


def after(linear: nn.Linear, node: NodeProto, shape: Shape, features: str | None) -> Shape:
    """The shape of a linear layer's sums. `features` names the input where this is the first layer."""
    if shape is None and node.op_type == "Gemm":
        return None, linear.out_features
    if shape is None or len(shape) != 2:
        refuse(node, "takes one row of numbers per record; put a Flatten before it")
    if features is not None and shape[1] not in (None, linear.in_features):
        raise ModelDoesNotFit(
            features,
            f"declares {shape[1]} features, {argument(node, 1)} takes {linear.in_features}; make them equal",
        )
    return shape[0], linear.out_features


def _size(shape: Shape) -> int | None:
    """How many numbers a record has."""
    if shape is None or None in shape[1:]:
        return None
    return prod(size for size in shape[1:] if size is not None)


def _cast(graph: Graph, node: NodeProto, shape: Shape) -> Shape:  # noqa: ARG001
    if int(attribute(node, "to", 0)) not in FLOATS:
        refuse(node, "rounds numbers to another type; cast to floats only, or drop it")
    return shape


def _flatten(graph: Graph, node: NodeProto, shape: Shape) -> Shape:  # noqa: ARG001
    axis = int(attribute(node, "axis", 1))
    if (axis + len(shape) if axis < 0 and shape is not None else axis) != 1:
        refuse(node, f"axis {axis} mixes records; use axis 1")
    return None if shape is None else shape[0], _size(shape)


def _reshape(graph: Graph, node: NodeProto, shape: Shape) -> Shape:
    wanted = [int(size) for size in graph.constant(node, argument(node, 1)).ravel()]
    batch, own = shape[0] if shape else None, _size(shape)
    rest = wanted[1:]
    if own is not None and min(rest, default=1) > 0 and prod(rest) == own:
        return batch, *rest
    keeps = bool(wanted) and wanted[0] in ({0, batch} if not attribute(node, "allowzero", 0) else {batch})
    if not keeps or rest != [-1]:
        refuse(node, f"to {wanted} could mix records; use a Flatten, and declare the number of features")
    return batch, own


def _squeeze(graph: Graph, node: NodeProto, shape: Shape) -> Shape:
    axes = _axes(graph, node, 0 if shape is None else len(shape))
    if shape is None or 0 in axes or any(axis >= len(shape) or shape[axis] != 1 for axis in axes):
        refuse(node, f"axes {sorted(axes)} could drop the batch; name an axis of size 1")
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _unsqueeze(graph: Graph, node: NodeProto, shape: Shape) -> Shape:
    axes = _axes(graph, node, 0 if shape is None else len(shape), new=True)
    if shape is None or 0 in axes or any(axis >= len(shape) + len(axes) for axis in axes):
        refuse(node, f"axes {sorted(axes)} could move the batch; leave axis 0 alone")
    old = iter(shape)
    return tuple(1 if axis in axes else next(old) for axis in range(len(shape) + len(axes)))


def _axes(graph: Graph, node: NodeProto, rank: int, *, new: bool = False) -> set[int]:
    """The axes that a node names, as an input or, in older files, as an attribute; never below 0."""
    name = optional(node, 1)
    if name is not None:
        axes = [int(axis) for axis in graph.constant(node, name).ravel()]
    else:
        axes = [int(axis) for entry in node.attribute if entry.name == "axes" for axis in entry.ints]
    if not axes:
        refuse(node, "names no axes; name them")
    rank += len(axes) if new else 0
    return {axis + rank if axis < 0 else axis for axis in axes}


MOVES: dict[str, Callable[[Graph, NodeProto, Shape], Shape]] = {
    "Identity": lambda _graph, _node, shape: shape,
    "ZipMap": lambda _graph, _node, shape: shape,
    "Cast": _cast,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
