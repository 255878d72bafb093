import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.operations import Dropout, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.training import network as networks
from tests.unit.training.cases import gradient, model


def read(net, loss="bce", features=6):
    return networks.network(net, networks.losses(loss, net), features)


class Written(nn.Module):
    """As people write models: functions and methods among modules."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 5), nn.Linear(5, 4, bias=False), nn.Linear(4, 1)

    def forward(self, x):
        x = functional.relu(self.first(x.flatten(1)))
        return torch.sigmoid(self.third(self.second(x).tanh())).squeeze(1)


def test_a_model_as_people_write_it():
    found = read(Written())
    assert [layer.activation for layer in found.layers] == [None, Relu(), Tanh()]
    assert [entry.name for entry in found.parameters] == [
        "first.weight", "first.bias", "second.weight", "third.weight", "third.bias",
    ]  # fmt: skip


def test_every_operation():
    chain = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.LeakyReLU(0.25), nn.Dropout(0.5), nn.Linear(5, 5), nn.ELU(1.0),
        nn.Linear(5, 5), nn.Sigmoid(), nn.Dropout(0.0), nn.Linear(5, 5), nn.Identity(), nn.Linear(5, 3),
    )  # fmt: skip
    found = read(chain, "softmax")
    assert [layer.activation for layer in found.layers] == [
        None,
        LeakyRelu(64),
        Elu(256),
        Sigmoid(),
        Identity(),
    ]
    assert found.layers[1].dropout == Dropout(128)
    assert found.losses[0].outputs == 3


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.two(x + self.one(x))


class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 1)

    def forward(self, x):
        return self.one(x) if x.sum() > 0 else x


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 1))

    def forward(self, x):
        return x @ self.weight


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (
            nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
            r"1 \(BatchNorm1d\).*of a batch",
        ),
        (nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 1)), r"1 \(GELU\).*there are Linear"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(3, 1)), "takes 3 numbers, and gets 4"),
        (nn.Sequential(nn.Linear(5, 1)), "takes 5 numbers, and gets 6"),
        (nn.Sequential(nn.ReLU(), nn.Linear(6, 1)), "before the first linear"),
        (nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 1)), "drops features"),
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 1)), "second activation"),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4, 1)), "after its dropout"),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.001), nn.Linear(4, 1)), "below 1/512"),
        (nn.Sequential(nn.Linear(6, 1), nn.ReLU()), "end at the logits"),
        (Twice(), "used more than once"),
        (Asks(), "does not always do the same"),
        (Own(), "uses a tensor by itself"),
    ],
)
def test_what_helpers_cannot_compute_is_named(net, said):
    with pytest.raises(ModelDoesNotFit, match=said):
        read(net)


@pytest.mark.parametrize(
    ("loss", "said"), [("hinge", "there are bce, mse and softmax"), (["softmax", "bce"], "stands alone")]
)
def test_losses_are_named(loss, said):
    with pytest.raises(ModelDoesNotFit, match=said):
        networks.losses(loss, model())


def test_a_gradient_finds_its_way_and_adds_up():
    net = model()
    found = networks.network(net, [BinaryCrossEntropy()], 6)
    flat = np.arange(found.size, dtype=np.float64)
    networks.fill(found, net, flat)
    networks.fill(found, net, flat)
    assert np.array_equal(gradient(net), 2 * flat)
    assert [*networks.parameters(found, net)] == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.l(self.e(x[:, :, None])[0][:, -1])


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (Recurrent(), r"e \(LSTM\): recurrent layers"),
        (nn.LSTM(6, 4), r"the model \(LSTM\): recurrent layers"),
        (nn.TransformerEncoderLayer(6, 2), r"the model \(TransformerEncoderLayer\): attention"),
        (nn.Sequential(nn.Linear(6, 4), nn.SiLU(), nn.Linear(4, 1)), "there are Linear"),
    ],
)
def test_a_layer_that_never_fits_is_named_before_what_is_done_with_it(net, said):
    with pytest.raises(ModelDoesNotFit, match=said):
        read(net)


class Breaks(nn.Module):
    def forward(self, x):
        raise RuntimeError("only for images")


def test_what_forward_raises_is_shown():
    with pytest.raises(
        ModelDoesNotFit, match=r"the model: cannot be traced: RuntimeError: only for images; write"
    ):
        read(Breaks())


def test_softmax_of_one_output_is_told_what_it_is():
    with pytest.raises(ModelDoesNotFit, match=r'the model has 1; with one output, take loss = "bce"'):
        read(model(), "cross_entropy")
