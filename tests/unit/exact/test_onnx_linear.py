"""scikit-learn's exports as its users make them: all five kinds, and pipelines that do not fit."""

from typing import Any

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("skl2onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from maskedlark.exact.errors import ModelDoesNotFit  # noqa: E402
from maskedlark.exact.onnx_model import read  # noqa: E402
from tests.unit.exact.exporting import exported_by_sklearn, fitted  # noqa: E402

FEATURES = 4
X = np.random.default_rng(1).integers(0, 256, (7, FEATURES)).astype(np.uint8)
KINDS = [
    ("MLPRegressor", "mse", 2),
    ("MLPClassifier", "bce", 2),
    ("MLPClassifier", "softmax", 3),
    ("LogisticRegression", "bce", 2),
    ("LogisticRegression", "softmax", 3),
    ("LinearRegression", "mse", 2),
    ("Ridge", "mse", 2),
]


def wanted(data: bytes) -> Any:
    """By ONNX's own evaluator: the file's last output."""
    features = onnx.load_from_string(data).graph.input[0]
    kind = np.float64 if features.type.tensor_type.elem_type == TensorProto.DOUBLE else np.float32
    given = {features.name: (X / 256).astype(kind)}
    answers: Any = ReferenceEvaluator(onnx.load_from_string(data)).run(None, given)
    return answers[-1]


def computed(data: bytes, loss: str) -> Any:
    with torch.inference_mode():
        found = read(data, [loss])(torch.from_numpy(X) / 256)
    if loss == "softmax":
        return found.softmax(dim=1).numpy()
    return found.numpy() if loss == "mse" else torch.cat([1 - found.sigmoid(), found.sigmoid()], 1).numpy()


@pytest.mark.parametrize(("name", "loss", "classes"), KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_export_is_read_without_another_word(name: str, loss: str, classes: int, dtype: Any) -> None:
    model = fitted(name, FEATURES, classes)
    plain = {"zipmap": False} if hasattr(model, "predict_proba") else {}
    data = exported_by_sklearn(model, FEATURES, dtype, **plain)
    assert np.allclose(computed(data, loss), wanted(data), rtol=1e-5, atol=1e-6)
    mapped = exported_by_sklearn(model, FEATURES, dtype)  # As it is by default: a dictionary for every row.
    for one, other in zip(read(mapped, [loss]).parameters(), read(data, [loss]).parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "loss", "classes"), KINDS[3:])
def test_coefficients_are_those_of_the_fit_bit_by_bit(name: str, loss: str, classes: int) -> None:
    model = fitted(name, FEATURES, classes)
    read_back = read(exported_by_sklearn(model, FEATURES), [loss]).parameters()
    weight, bias = (each.detach().numpy() for each in read_back)
    assert np.array_equal(weight, np.atleast_2d(model.coef_).astype(np.float32))
    assert np.array_equal(bias, np.atleast_1d(model.intercept_).astype(np.float32))


def test_two_targets_are_two_outputs() -> None:
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(0)
    model = Ridge().fit(rng.random((9, FEATURES)), rng.random((9, 2)))
    weight, _ = read(exported_by_sklearn(model, FEATURES), ["mse", "mse"]).parameters()
    assert weight.shape == (2, FEATURES)


def alone(kind: str, **attributes: Any) -> bytes:
    """One node of scikit-learn's, written by hand."""
    outputs = ["label", "y"] if kind == "LinearClassifier" else ["y"]
    node = helper.make_node(kind, ["x"], outputs, name="own", domain="ai.onnx.ml", **attributes)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FEATURES])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "hand", values, out)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)]).SerializeToString()
    )


W = [0.5, 1.0, -2.0, 0.25]
OPPOSITE = [*W, *(-each for each in W)]
LOGISTIC = {"classlabels_ints": [0, 1], "post_transform": "LOGISTIC"}
REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "another loss": ("LinearClassifier", {"coefficients": OPPOSITE, **LOGISTIC}, "softmax", 'loss = "bce"'),
    "two regressions": ("LinearClassifier", {"coefficients": W * 2, **LOGISTIC}, "bce", "2 classes by LOG"),
    "one against the rest": (
        "LinearClassifier",
        {"coefficients": W * 3, **LOGISTIC, "classlabels_ints": [0, 1, 2]},
        "softmax",
        "3 classes by LOGISTIC; export a logistic regression of two classes, or softmax",
    ),
    "a transform": (
        "LinearRegressor",
        {"coefficients": W, "post_transform": "PROBIT"},
        "mse",
        "without post_",
    ),
    "a number too few": (
        "LinearRegressor",
        {"coefficients": W[:3], "targets": 2},
        "mse",
        "3 coefficients, 0",
    ),
    "no list": ("LinearRegressor", {"coefficients": 1.5}, "mse", "coefficients is no list"),
    "words": ("LinearRegressor", {"coefficients": ["a"]}, "mse", "are no numbers"),
    "a feature too few": ("LinearRegressor", {"coefficients": W[:3]}, "mse", "declares 4 features"),
    "a tree": ("TreeEnsembleRegressor", {"n_targets": 1}, "mse", "a tree has no gradient"),
    "a scaler": ("Scaler", {"offset": W, "scale": W}, "mse", "scale them before they become bytes"),
    "a lone normaliser": ("Normalizer", {"norm": "L1"}, "mse", "after the probabilities"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_does_not_fit_gets_advice(name: str) -> None:
    kind, attributes, loss, said = REFUSED[name]
    with pytest.raises(ModelDoesNotFit, match=said):
        read(alone(kind, **attributes), [loss])


def test_an_output_can_be_named_and_a_wrong_name_lists_them() -> None:
    data = exported_by_sklearn(fitted("MLPClassifier", FEATURES), FEATURES, zipmap=False)
    assert len(read(data, ["bce"], "probabilities")) == 5
    with pytest.raises(ModelDoesNotFit, match=r"no output 'probability'; did you mean 'probabilities'\?"):
        read(data, ["bce"], "probability")
    with pytest.raises(ModelDoesNotFit, match="train the output of probabilities"):
        read(data, ["bce"], "label")


@pytest.mark.parametrize("name", ["LogisticRegression", "MLPClassifier"])
def test_columns_of_probabilities_are_told_how_to_export(name: str) -> None:
    data = exported_by_sklearn(fitted(name, FEATURES), FEATURES, zipmap="columns")
    with pytest.raises(ModelDoesNotFit, match=r'export with options=\{"zipmap": False\}'):
        read(data, ["bce"])
    assert read(exported_by_sklearn(fitted(name, FEATURES), FEATURES, zipmap=False), ["bce"])
