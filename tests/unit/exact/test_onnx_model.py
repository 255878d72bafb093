"""Models as torch, scikit-learn and Keras write them; and what does not fit is refused by its node's name."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.network import Network
from maskedlark.exact.operations import Dropout, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from maskedlark.exact.onnx_model import read  # noqa: E402
from maskedlark.training import network as networks  # noqa: E402
from tests.unit.exact.exporting import Residual, WideAndDeep, exported  # noqa: E402

rng = np.random.default_rng(0)


def built(*nodes: Any, inputs: Any = 4, **constants: Any) -> bytes:
    """A graph written by hand, as another exporter would. `inputs` may be several axes."""
    tensors = [
        numpy_helper.from_array(
            np.asarray(value, np.float32 if np.asarray(value).dtype.kind == "f" else None), name
        )
        for name, value in constants.items()
    ]
    axes = [inputs] if isinstance(inputs, int | str) else list(inputs)
    graph = helper.make_graph(
        nodes,
        "hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *axes])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        tensors,
    )
    return bytes(helper.make_model(graph).SerializeToString())


def network_of(data: bytes, *losses: str, output: str | None = None) -> Network:
    """What helpers compute for a file: read once, then as any torch model."""
    module = read(data, losses, output)
    features = next(module.parameters()).shape[1]
    return networks.network(module, networks.losses(losses, module), features)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], name=f"the_{kind}", **attributes)


@pytest.mark.parametrize("dynamo", [True, False])
def test_torch(dynamo: bool) -> None:
    if dynamo:
        pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(12, 7),
        torch.nn.ReLU(),
        torch.nn.Linear(7, 6),
        torch.nn.LeakyReLU(0.1),
        torch.nn.Linear(6, 5),
        torch.nn.Sigmoid(),
        torch.nn.Linear(5, 4),
        torch.nn.Tanh(),
        torch.nn.Linear(4, 5, bias=False),
        torch.nn.ELU(0.5),
        torch.nn.Linear(5, 3),
    )
    data = exported(module, (2, 3, 4), dynamo=dynamo)
    network = network_of(data, "softmax")
    found = [layer.activation for layer in network.layers]
    assert found == [None, Relu(), LeakyRelu(26), Sigmoid(), Tanh(), Elu(128)]
    assert network.features == 12
    for own, tensor in zip(read(data, ["softmax"]).parameters(), module.parameters(), strict=True):
        assert torch.equal(own, tensor)


def test_torch_dropout() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Dropout(0.25), torch.nn.Linear(3, 1)
    )
    data = exported(
        module, (2, 4), dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False
    )
    assert [layer.dropout for layer in network_of(data, "bce").layers] == [None, Dropout(64)]


def test_torch_ends_at_the_logits() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Sigmoid())
    assert len(read(exported(module, (2, 4), dynamo=False), ["bce"])) == 1
    soft = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))
    assert len(read(exported(soft, (2, 4), dynamo=False), ["softmax"])) == 1


@pytest.mark.parametrize("classes", [2, 3])
def test_scikit_learn(classes: int) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    neural = pytest.importorskip("sklearn.neural_network")
    x, y = rng.random((60, 4)), rng.integers(0, classes, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = neural.MLPClassifier((6, 5), activation="tanh", max_iter=3, random_state=0).fit(x, y)
        data = skl2onnx.to_onnx(
            fitted, x[:1].astype(np.float32), options={"zipmap": False}
        ).SerializeToString()
    loss = "bce" if classes == 2 else "softmax"
    network = network_of(data, loss, output="probabilities")
    assert [layer.activation for layer in network.layers] == [None, Tanh(), Tanh()]
    linear = [module for module in read(data, [loss], "probabilities") if isinstance(module, torch.nn.Linear)]
    for module, weight, bias in zip(linear, fitted.coefs_, fitted.intercepts_, strict=True):
        assert np.allclose(module.weight.detach().numpy().T, weight, atol=1e-6)
        assert np.allclose(module.bias.detach().numpy(), bias, atol=1e-6)


def test_keras_writes_matmul_and_add() -> None:
    data = built(
        node("Reshape", "x shape", "r"),
        node("MatMul", "r k0", "m0"),
        node("Add", "m0 b0", "a0"),
        node("Relu", "a0", "h"),
        node("MatMul", "h k1", "m1"),
        node("Add", "b1 m1", "a1"),
        node("Identity", "a1", "out"),
        k0=rng.random((4, 3)),
        b0=rng.random(3),
        k1=rng.random((3, 1)),
        b1=rng.random(1),
        shape=np.array([-1, 4]),
    )
    shapes = [tuple(each.shape) for each in read(data, ["mse"]).parameters()]
    assert shapes == [(3, 4), (3,), (1, 3), (1,)]
    assert network_of(data, "mse").size == 19


def test_two_linear_layers_have_an_identity_between() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    network = network_of(exported(module, (2, 4), dynamo=False), "mse")
    assert network.layers[1].activation == Identity()


W: dict[str, Any] = {"w": rng.random((4, 1))}
BAD = {
    "the_Conv": built(node("MatMul", "x w", "m"), node("Conv", "m k", "c"), k=rng.random((1, 1, 1)), **W),
    "the_BatchNormalization": built(
        node("MatMul", "x w", "m"), node("BatchNormalization", "m s s s s", "c"), s=rng.random(1), **W
    ),
    "the_Sub": built(node("MatMul", "x w", "m"), node("Sub", "m m", "c"), **W),
    "the_Add": built(node("MatMul", "x w", "m"), node("Add", "m m", "c"), **W),
    "the_MatMul": built(node("MatMul", "x x", "m")),
    "the_Gemm": built(node("Gemm", "x w", "m", alpha=2.0), **W),
    "the_Relu": built(node("Relu", "x", "r"), node("MatMul", "r w", "m"), **W),
    "the_Tanh": built(
        node("MatMul", "x k", "m"),
        node("Relu", "m", "t"),
        node("Tanh", "t", "r"),
        node("MatMul", "r w", "o"),
        k=rng.random((4, 4)),
        **W,
    ),
    "the_LeakyRelu": built(
        node("MatMul", "x k", "m"),
        node("LeakyRelu", "m", "t", alpha=9.0),
        node("MatMul", "t w", "o"),
        k=rng.random((4, 4)),
        **W,
    ),
    "x": built(node("MatMul", "x w", "m"), inputs=5, **W),
    "k": built(
        node("MatMul", "x k", "m"),
        node("Identity", "k", "same"),
        node("MatMul", "m same", "o"),
        k=rng.random((4, 4)),
    ),
    "the_Dropout": built(node("Dropout", "x", "d"), node("MatMul", "d w", "m"), **W),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_does_not_fit_is_refused_by_name(name: str) -> None:
    with pytest.raises(ModelDoesNotFit) as caught:
        read(BAD[name], ["mse"])
    assert caught.value.node == name
    assert len(str(caught.value)) > len(name) + 20  # and it says what to change


TWO: dict[str, Any] = {"k": rng.random((4, 3)), "v": rng.random((3, 1))}
SOFT, BCE = ["softmax"], ["bce"]


def inside(kind: str, inputs: str = "m", **attributes: Any) -> bytes:
    """Two layers with one node between them."""
    between = node(kind, inputs, "between", **attributes)
    return built(node("MatMul", "x k", "m"), between, node("MatMul", "between v", "o"), **TWO)


def last(*nodes: Any, inputs: Any = 4, outputs: int = 1, **constants: Any) -> bytes:
    """One layer, and what follows it."""
    return built(node("MatMul", "x w", "m"), *nodes, inputs=inputs, w=rng.random((4, outputs)), **constants)


MISREAD: list[tuple[str, bytes, list[Any]]] = [
    ("the_Tanh", last(node("Tanh", "m", "o")), ["mse"]),
    ("the_Relu", last(node("Relu", "m", "o")), BCE),
    ("the_Sigmoid", last(node("Sigmoid", "m", "o"), outputs=2), ["bce", "mse"]),
    ("the_Dropout", last(node("Dropout", "m", "o")), BCE),
    ("the_Softmax", last(node("Softmax", "m", "o", axis=0), outputs=3), SOFT),
    ("the_Softmax", last(node("Softmax", "m", "o"), outputs=5), [*SOFT, "softmax"]),
    (
        "the_Softmax",
        last(node("Reshape", "m s", "r"), node("Softmax", "r", "o"), outputs=6, s=[-1, 2, 3]),
        SOFT,
    ),
    ("the_Concat", last(node("MatMul", "x w", "n"), node("Concat", "n m", "o", axis=1)), BCE),
    (
        "the_Concat",
        last(node("Sub", "one m", "n"), node("Concat", "n m", "o", axis=1), one=np.float32(1)),
        BCE,
    ),
    ("the_Cast", inside("Cast", to=TensorProto.INT64), ["mse"]),
    ("the_Cast", last(node("Cast", "m", "o", to=TensorProto.BOOL)), BCE),
    ("the_Gemm", built(node("Gemm", "x k b", "o"), b=rng.random((3, 1)), k=TWO["k"]), SOFT),
    ("the_Add", last(node("Add", "m b", "o"), b=rng.random((3, 1)), outputs=3), SOFT),
    (
        "the_Add",
        last(node("Reshape", "m s", "r"), node("Add", "r b", "o"), b=rng.random(3), outputs=3, s=[-1, 3, 1]),
        SOFT,
    ),
    ("the_Relu", inside("Relu", domain="acme"), ["mse"]),
    ("the_MatMul", last(inputs=(3, 4)), ["mse"]),
    ("the_MatMul", last(inputs=("T", 4)), ["mse"]),
    ("the_Flatten", built(node("Flatten", "x", "f", axis=0), node("MatMul", "f w", "o"), **W), BCE),
    (
        "the_Reshape",
        built(node("Reshape", "x s", "r"), node("MatMul", "r w", "o"), inputs="D", s=[-1, 4], **W),
        BCE,
    ),
    ("the_Reshape", last(node("Reshape", "m s", "o"), outputs=3, s=[-1]), SOFT),
    ("the_Squeeze", last(node("Squeeze", "m", "o")), BCE),
]


@pytest.mark.parametrize("case", MISREAD, ids=[f"{name} {n}" for n, (name, _, _) in enumerate(MISREAD)])
def test_what_would_be_misread_is_refused_by_name(case: tuple[str, bytes, list[Any]]) -> None:
    name, data, losses = case
    with pytest.raises(ModelDoesNotFit) as caught:
        read(data, losses)
    assert caught.value.node == name


NAN = float("nan")
BROKEN = {
    "computed bias": built(node("Gemm", "x w x", "o"), w=rng.random((4, 4))),
    "computed ratio": inside("Dropout", "m x"),
    "ratio of nothing": inside("Dropout", ratio=NAN),
    "slope of nothing": inside("Elu", alpha=NAN),
    "no weight": built(node("MatMul", "x w", "o")),
    "one input": built(node("MatMul", "x", "o")),
    "slope that would be 0": inside("LeakyRelu", alpha=0.001),
    "slope that is too large": inside("LeakyRelu", alpha=5.0),
    "integer weight": built(node("MatMul", "x w", "o"), w=np.ones((4, 1), np.int8)),
    "garbage": b"hello world garbage",
    "nothing": b"",
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_file_is_refused(name: str) -> None:
    with pytest.raises(ModelDoesNotFit):
        read(BROKEN[name], ["mse"])


def test_a_weight_that_is_a_signalling_nan_is_one_that_is_nan() -> None:
    weight = np.full((4, 1), 0x7FA00000, np.uint32).view(np.float32)
    model = read(built(node("MatMul", "x w", "o"), w=weight), ["mse"])
    assert all(bool(each.isnan().all()) for name, each in model.named_parameters() if "weight" in name)


def test_constants_come_in_many_forms() -> None:
    shape = helper.make_node("Constant", [], ["s"], value_ints=[-1, 4])
    ratio = helper.make_node("Constant", [], ["q"], value_float=0.25)
    data = built(
        shape,
        ratio,
        node("Reshape", "x s", "r"),
        node("MatMul", "r k", "m"),
        node("Dropout", "m q", "d"),
        node("MatMul", "d v", "o"),
        **TWO,
    )
    assert network_of(data, "bce").layers[1].dropout == Dropout(64)
    one = built(
        node("MatMul", "x k", "m"),
        node("Dropout", "m q", "d"),
        node("MatMul", "d v", "o"),
        q=np.array([0.5], np.float32),
        **TWO,
    )
    assert network_of(one, "bce").layers[1].dropout == Dropout(128)


def test_torch_reshapes() -> None:
    pytest.importorskip("onnxscript")

    class Reshaped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(12, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.linear(x.reshape(-1, 12))
            return found.squeeze(1)

    data = exported(Reshaped(), (2, 3, 4), dynamo=True, optimize=False)
    assert network_of(data, "mse").features == 12


def test_a_shape_computed_from_the_batch_is_read() -> None:
    """As torch writes `x.view(x.size(0), -1)`."""
    data = built(
        node("Shape", "x", "sizes"),
        node("Gather", "sizes first", "batch"),
        node("Concat", "batch rest", "s", axis=0),
        node("Reshape", "x s", "r"),
        node("MatMul", "r w", "o"),
        inputs=(2, 2),
        first=np.array([0]),
        rest=np.array([-1]),
        **W,
    )
    assert network_of(data, "bce").features == 4


@pytest.mark.parametrize("shape", [[1, 4], [7, 4], [7, -1], [-1, 2], [2, -1], [0, 2, 2], [-1, 4, 1]])
def test_a_reshape_keeps_every_record_a_row_of_its_numbers(shape: list[int]) -> None:
    data = built(node("Reshape", "x s", "r"), node("MatMul", "r w", "o"), s=np.array(shape), **W)
    with pytest.raises(ModelDoesNotFit):
        read(data, BCE)


@pytest.mark.parametrize(
    "module", [Residual(), WideAndDeep(True), WideAndDeep(False)], ids=["residual", "joined", "added"]
)
def test_two_paths_get_advice_that_helps_from_a_file_and_from_torch(module: torch.nn.Module) -> None:
    advice = r"leave one path out, or train any model, as it is, on labels from one release \(docs/CELLS.md\)"
    with pytest.raises(ModelDoesNotFit, match=rf"joins two paths.*{advice}"):
        read(exported(module, (2, 4), dynamo=False), BCE)
    with pytest.raises(ModelDoesNotFit, match=advice):
        networks.network(module, networks.losses("bce", module), 4)


def test_outputs_and_losses_have_to_agree() -> None:
    with pytest.raises(ModelDoesNotFit, match=r"0.weight: gives 1 outputs"):
        network_of(built(node("MatMul", "x w", "m"), **W), "bce", "bce")


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e, self.l = torch.nn.LSTM(1, 3, batch_first=True), torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.l(self.e(x[:, :, None])[0][:, -1])
        return scores


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e, self.l = torch.nn.Embedding(256, 2), torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.l(self.e((x * 256).long()).flatten(1))
        return scores


def between(activation: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), activation, torch.nn.Linear(3, 1))


THERE_ARE = "not in the table of operations; there are Linear, ReLU, LeakyReLU, ELU, Sigmoid, Tanh"


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Recurrent(), "LSTM.*recurrent layers are not in the table of operations"),
        (Embedded(), "give a category a column of 0 and 255 for each of its values"),
        (between(torch.nn.SiLU()), rf"SiLU.*{THERE_ARE}"),
        (between(torch.nn.GELU()), THERE_ARE),
        (between(torch.nn.PReLU()), THERE_ARE),
        (between(torch.nn.Softplus()), THERE_ARE),
        (between(torch.nn.Hardswish()), THERE_ARE),
    ],
)
def test_a_file_and_its_module_are_told_the_same(module: torch.nn.Module, said: str, dynamo: bool) -> None:
    if dynamo:
        pytest.importorskip("onnxscript")
    with pytest.raises(ModelDoesNotFit, match=said) as caught:
        read(exported(module, (2, 4), dynamo=dynamo), BCE)
    assert "scaler" not in str(caught.value)
    with pytest.raises(ModelDoesNotFit, match=said.replace("not in the table of operations; t", ".*t")):
        networks.network(module, networks.losses("bce", module), 4)


def test_a_scaler_is_told_apart_from_a_factor_between_layers() -> None:
    scaled = built(node("Mul", "x c", "s"), node("MatMul", "s w", "o"), c=np.float32(2), **W)
    with pytest.raises(ModelDoesNotFit, match="fit the model again on byte / 256, and export it without its"):
        read(scaled, BCE)
    with pytest.raises(ModelDoesNotFit, match="fold it into a weight") as caught:
        read(built(node("MatMul", "x k", "m"), node("Mul", "m c", "o"), c=np.float32(2), **TWO), BCE)
    assert "scaler" not in str(caught.value)
