"""What is read from a file computes what the file computes: against ONNX's own reference evaluator."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from maskedlark.exact.onnx_model import read  # noqa: E402

ACTIVATIONS = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu"]


class Drawn:
    """A graph that grows node by node; every node takes the value before it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.value = draw, "x"
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def add(self, kind: str, *others: str, **attributes: Any) -> None:
        name, inputs = f"v{len(self.nodes)}", [self.value, *others]
        if kind == "Add" and self.draw(st.booleans()):
            inputs.reverse()
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        self.value = name

    def tensor(self, array: Any) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def floats(self, *shape: int) -> str:
        return self.tensor(self.rng.normal(0, 0.7, shape).astype(np.float32))

    def move(self, width: int) -> None:
        """Perhaps something that moves no number."""
        kind = self.draw(st.sampled_from(["", "", "Identity", "Flatten", "Reshape", "Cast", "Unsqueeze"]))
        if kind in ("Identity", "Flatten"):
            self.add(kind)
        elif kind == "Reshape":
            shapes = [[-1, width], [0, -1], [0, width]]
            self.add(kind, self.tensor(np.array(self.draw(st.sampled_from(shapes)))))
        elif kind == "Cast":
            self.add(kind, to=TensorProto.FLOAT)
        elif kind == "Unsqueeze":
            axis = self.tensor(np.array([self.draw(st.sampled_from([1, 2, -1]))]))
            self.add("Unsqueeze", axis)
            self.add("Squeeze", axis)

    def linear(self, inputs: int, outputs: int) -> None:
        bias = self.floats(*self.draw(st.sampled_from([(outputs,), (1, outputs)])))
        biased, turned = self.draw(st.booleans()), self.draw(st.booleans())
        if self.draw(st.booleans()):
            weight = self.floats(*((outputs, inputs) if turned else (inputs, outputs)))
            self.add("Gemm", weight, *([bias] if biased else []), transB=int(turned))
        else:
            self.add("MatMul", self.floats(inputs, outputs))
            if biased:
                self.add("Add", bias)

    def activate(self) -> None:
        kind = self.draw(st.sampled_from(["", *ACTIVATIONS]))
        if kind:
            slope = {"alpha": self.draw(st.integers(0, 512)) / 256} if kind in ("LeakyRelu", "Elu") else {}
            self.add(kind, **slope)
        if self.draw(st.booleans()):
            self.add("Dropout")


@st.composite
def models(draw: st.DrawFn) -> tuple[bytes, tuple[str, ...], str, list[int]]:
    """A file, its losses, what its end adds to the logits, and the shape of a record."""
    drawn = Drawn(draw)
    losses = draw(st.sampled_from([("mse",), ("bce",) * 2, ("softmax",), ("bce",)]))
    shape = draw(st.sampled_from([[6], [2, 3], [1, 3, 2]]))
    if len(shape) > 1:
        drawn.add("Flatten")
    sizes = [6, *draw(st.lists(st.integers(1, 5), max_size=3)), 3 if losses == ("softmax",) else len(losses)]
    for place in range(len(sizes) - 1):
        if place:
            drawn.activate()
        drawn.move(sizes[place])
        drawn.linear(sizes[place], sizes[place + 1])
    end = ""
    if draw(st.booleans()):
        end = {"mse": "", "bce": "Sigmoid", "softmax": "Softmax"}[losses[0]]
    if end:
        drawn.add(end)
    drawn.move(sizes[-1])
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])]
    out = [helper.make_tensor_value_info(drawn.value, TensorProto.FLOAT, None)]
    graph = helper.make_graph(drawn.nodes, "drawn", values, out, drawn.tensors)
    return helper.make_model(graph).SerializeToString(), losses, end, shape


@given(models(), st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_a_model_computes_what_its_file_computes(
    case: tuple[bytes, tuple[str, ...], str, list[int]], seed: int
) -> None:
    data, losses, end, shape = case
    features = np.random.default_rng(seed).integers(0, 256, (5, 6)).astype(np.uint8)
    wanted: Any = ReferenceEvaluator(onnx.load_from_string(data)).run(
        None, {"x": (features / 256).astype(np.float32).reshape(5, *shape)}
    )
    with torch.inference_mode():
        found = read(data, losses).eval()(torch.from_numpy(features) / 256)
    ended = {"": found, "Sigmoid": found.sigmoid(), "Softmax": found.softmax(dim=1)}[end]
    assert np.allclose(ended.numpy(), wanted[0], rtol=1e-3, atol=1e-4)


@st.composite
def linear_models(draw: st.DrawFn) -> tuple[bytes, str]:
    """One node as scikit-learn writes it, and its loss."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    loss = draw(st.sampled_from(["mse", "bce", "softmax"]))
    rows = {"mse": 1, "bce": 2, "softmax": draw(st.integers(2, 5))}[loss]
    weight, bias = rng.normal(0, 1, (rows, 6)).astype(np.float32), rng.normal(0, 1, rows).astype(np.float32)
    if loss == "bce":
        weight[0], bias[0] = -weight[1], -bias[1]
    given: dict[str, Any] = {"coefficients": weight.ravel().tolist(), "intercepts": bias.tolist()}
    kind, outputs = "LinearRegressor", ["y"]
    if loss != "mse":
        kind, outputs = "LinearClassifier", ["label", "y"]
        given |= {"classlabels_ints": list(range(rows)), "multi_class": int(loss == "softmax")}
        given["post_transform"] = "LOGISTIC" if loss == "bce" else "SOFTMAX"
    node = helper.make_node(kind, ["x"], outputs, domain="ai.onnx.ml", **given)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph, opsets = helper.make_graph([node], "drawn", values, out), [helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString(), loss


@given(linear_models(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_linear_model_of_scikit_learn_computes_what_its_file_computes(
    case: tuple[bytes, str], seed: int
) -> None:
    data, loss = case
    features = np.random.default_rng(seed).integers(0, 256, (5, 6)).astype(np.uint8)
    wanted: Any = ReferenceEvaluator(onnx.load_from_string(data)).run(
        None, {"x": (features / 256).astype(np.float32)}
    )
    with torch.inference_mode():
        found = read(data, [loss])(torch.from_numpy(features) / 256)
    ended = {"mse": found, "bce": torch.cat([-found, found], 1).sigmoid(), "softmax": found.softmax(dim=1)}
    assert np.allclose(ended[loss].numpy(), wanted[0], rtol=1e-4, atol=1e-5)
