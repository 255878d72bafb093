"""scikit-learn's linear models, rewritten as the Gemm, Sigmoid and Softmax they stand for.

So the one reader reads them as it reads any network. They are nodes of `ai.onnx.ml`; a logistic regression of
doubles is a few plain ones. Run by the ad server.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from maskedlark.exact.onnx_nodes import argument, attribute, name_of, refuse

_DOMAIN, _OPSET = "ai.onnx.ml", 13
Array = NDArray[np.floating[Any]]


def rewrite(model: ModelProto) -> None:
    """Replace linear regressors and classifiers, in place. Their class labels are dropped."""
    graph = model.graph
    if not any(node.domain == _DOMAIN for node in graph.node):
        return
    made = {name: node for node in graph.node for name in node.output}
    nodes = [each for node in graph.node for each in _rewritten(graph, node, made)]
    del graph.node[:]
    graph.node.extend(nodes)
    if not any(each.domain in ("", "ai.onnx") for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", _OPSET))


def _rewritten(graph: GraphProto, node: NodeProto, made: dict[str, NodeProto]) -> Iterator[NodeProto]:
    kind = node.op_type if node.domain == _DOMAIN and node.output else ""
    if kind == "LinearRegressor":
        if _word(node, "post_transform", "NONE") != "NONE":
            refuse(node, "transforms its output; export the model without post_transform")
        layer = _layer(node, int(attribute(node, "targets", 1)))
        yield _gemm(graph, node, argument(node, 0), layer, str(node.output[0]))
    elif kind == "LinearClassifier":
        yield from _classifier(graph, node)
    elif kind == "Normalizer" and _is_of_chances(node, made.get(argument(node, 0))):
        yield helper.make_node("Identity", [argument(node, 0)], list(node.output), name=name_of(node))
    elif node.op_type == "Div" and (both := _both_sigmoids(graph, node, made)):
        yield from _binary(graph, node, *both, str(node.output[0]))
    else:
        yield node


def _classifier(graph: GraphProto, node: NodeProto) -> Iterator[NodeProto]:
    if len(node.output) < 2 or not node.output[1]:
        refuse(node, "gives classes and no probabilities; export the model with both")
    classes = len(_many(node, "classlabels_ints")) or len(_many(node, "classlabels_strings"))
    layer, features = _layer(node, classes), argument(node, 0)
    kind, out = _word(node, "post_transform", "NONE"), str(node.output[1])
    if kind == "LOGISTIC" and _are_opposite(*layer):
        yield from _binary(graph, node, features, layer, out)
    elif kind == "SOFTMAX":
        yield _gemm(graph, node, features, layer, f"{out}.scores")
        yield helper.make_node("Softmax", [f"{out}.scores"], [out], name=f"{name_of(node)}.softmax", axis=1)
    elif kind == "NONE":
        yield _gemm(graph, node, features, layer, out)
    else:
        refuse(node, f"{classes} classes by {kind}; export a logistic regression of two classes, or softmax")


def _binary(
    graph: GraphProto, node: NodeProto, features: str, layer: tuple[Array, Array], out: str
) -> Iterator[NodeProto]:
    """Two scores that are one, (-z, z): their sigmoids are (1 - p, p)."""
    name, (weight, bias) = name_of(node), layer
    scores, chance, rest, one = (f"{out}.{each}" for each in ("scores", "chance", "rest", "one"))
    graph.initializer.append(numpy_helper.from_array(np.array(1, weight.dtype), one))
    yield _gemm(graph, node, features, (weight[1:], bias[1:]), scores)
    yield helper.make_node("Sigmoid", [scores], [chance], name=f"{name}.sigmoid")
    yield helper.make_node("Sub", [one, chance], [rest], name=f"{name}.sub")
    yield helper.make_node("Concat", [rest, chance], [out], name=name, axis=1)


def _is_of_chances(node: NodeProto, before: NodeProto | None) -> bool:
    """Whether it divides by the sum of probabilities, which is 1 already."""
    if before is None or (before.domain, before.op_type) != (_DOMAIN, "LinearClassifier"):
        return False
    return _word(node, "norm", "MAX") == "L1" and _word(before, "post_transform", "NONE") != "NONE"


def _both_sigmoids(
    graph: GraphProto, node: NodeProto, made: dict[str, NodeProto]
) -> tuple[str, tuple[Array, Array]] | None:
    """The features and the two layers of s / Σ|s|, where s are the sigmoids of opposite scores: Σ is 1."""
    chain = [node]
    for kind, place in (("ReduceSum", 1), ("Abs", 0), ("Sigmoid", 0), ("Add", 0), ("MatMul", 0)):
        before = made.get(chain[-1].input[place]) if len(chain[-1].input) > place else None
        if before is None or before.op_type != kind or before.domain not in ("", "ai.onnx"):
            return None
        chain.append(before)
    _, total, size, _, add, product = chain
    if node.input[0] != size.input[0] or len(add.input) != 2 or len(product.input) != 2:
        return None
    held = {tensor.name: tensor for tensor in graph.initializer}
    names = (product.input[1], add.input[1], *total.input[1:])
    if len(names) != 3 or not all(name in held for name in names):
        return None
    weight, bias, axis = (numpy_helper.to_array(held[name]) for name in names)
    layer = weight.T, bias.ravel()
    fits = weight.ndim == 2 and bias.shape in ((2,), (1, 2)) and axis.tolist() in ([1], [-1])
    return (str(product.input[0]), layer) if fits and _are_opposite(*layer) else None


def _are_opposite(weight: Array, bias: Array) -> bool:
    return len(weight) == 2 and bool((weight[0] == -weight[1]).all() and bias[0] == -bias[1])


def _layer(node: NodeProto, rows: int) -> tuple[Array, Array]:
    """Coefficients (rows, features) and intercepts (rows,)."""
    given = _many(node, "coefficients"), _many(node, "intercepts")
    try:
        weight, bias = (np.array(each, np.float32) for each in given)
    except (TypeError, ValueError):
        refuse(node, "has coefficients that are no numbers; export it again")
    if rows < 1 or not weight.size or weight.size % rows or bias.size not in (0, rows):
        refuse(node, f"{weight.size} coefficients, {bias.size} intercepts, {rows} outputs; export it again")
    return weight.reshape(rows, -1), bias if bias.size else np.zeros(rows, np.float32)


def _gemm(
    graph: GraphProto, node: NodeProto, features: str, layer: tuple[Array, Array], out: str
) -> NodeProto:
    # Tensors are named after the output: no other node has it.
    names = f"{out}.weight", f"{out}.bias"
    graph.initializer.extend(map(numpy_helper.from_array, layer, names))
    return helper.make_node("Gemm", [features, *names], [out], name=name_of(node), transB=1)


def _word(node: NodeProto, name: str, default: str) -> str:
    entry = next((entry for entry in node.attribute if entry.name == name), None)
    value = default.encode() if entry is None else onnx.helper.get_attribute_value(entry)
    if not isinstance(value, bytes):
        refuse(node, f"{name} is no word; export the model again")
    return value.decode("utf-8", "replace")


def _many(node: NodeProto, name: str) -> Sequence[Any]:
    entry = next((entry for entry in node.attribute if entry.name == name), None)
    value = [] if entry is None else onnx.helper.get_attribute_value(entry)
    if not isinstance(value, list | tuple):
        refuse(node, f"{name} is no list; export the model again")
    return value
