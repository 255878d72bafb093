"""Random networks, weights and records for the exact engine, and the same as plain data for its twin."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.core.candidates import All, Pair, Sample
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.exact import operations
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.forward import Seed
from maskedlark.exact.gradient import Records
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Dropout
from maskedlark.exact.quantise import Quantised, input_exponents
from maskedlark.randomness import FixedRandomness

KINDS = {
    operations.Relu: "relu",
    operations.Identity: "identity",
    operations.LeakyRelu: "leaky",
    operations.Elu: "elu",
    operations.Sigmoid: "sigmoid",
    operations.Tanh: "tanh",
}


@dataclass(frozen=True)
class Case:
    """One step with all its helpers."""

    network: Network
    weights: Quantised
    clip: Clip
    helpers: tuple[Records, ...]

    @property
    def twin_clip(self) -> dict[str, Any]:
        return {
            "psi": self.clip.psi,
            "norm": str(self.clip.norm),
            "fraction": self.clip.fraction,
            "depth": self.clip.depth,
        }


def twin_network(network: Network, weights: Quantised) -> dict[str, Any]:
    """The network and its weights as the twin wants them."""
    entries = iter(zip(network.parameters, weights.exponents, strict=True))
    layers = []
    for layer, exponent in zip(network.layers, (None, *weights.activations), strict=True):
        (entry, weight_exponent), bias, bias_exponent = next(entries), None, 0
        weight = weights.values[entry.place].reshape(entry.shape)
        if layer.linear.bias is not None:
            place, bias_exponent = next(entries)
            bias = weights.values[place.place].tolist()
        before = None
        if layer.activation is not None:
            k = getattr(layer.activation, "k", 256)
            before = {"kind": KINDS[type(layer.activation)], "k": k, "exponent": exponent}
        layers.append(
            {
                "weight": (weight.T if layer.linear.transposed else weight).tolist(),
                "transposed": layer.linear.transposed,
                "bias": bias,
                "weight_exponent": weight_exponent,
                "bias_exponent": bias_exponent,
                "before": before,
                "dropout": layer.dropout.k if layer.dropout else None,
            }
        )
    kinds = {BinaryCrossEntropy: "bce", SquaredError: "squared", SoftmaxCrossEntropy: "softmax"}
    losses = [{"kind": kinds[type(loss)], "outputs": loss.outputs} for loss in network.losses]
    return {"layers": layers, "losses": losses}


def twin_records(records: Records) -> list[dict[str, Any]]:
    """A helper's records as the twin wants them."""
    found = []
    for i in range(len(records)):
        masks, first = [], 0
        for column in records.candidates:
            masks.append(records.masks[i, first : first + column.shape[1]].tolist())
            first += column.shape[1]
        found.append(
            {
                "features": records.features[i].tolist(),
                "candidates": [column[i].tolist() for column in records.candidates],
                "masks": masks,
                "id": records.seed.ids[i].tobytes() if records.seed else b"",
            }
        )
    return found


@st.composite
def activations(draw: st.DrawFn) -> Activation:
    k = draw(st.sampled_from([1, 3, 77, 256, 300]))
    plain = [operations.Relu(), operations.Identity(), operations.Sigmoid(), operations.Tanh()]
    return draw(st.sampled_from([*plain, operations.LeakyRelu(k), operations.Elu(k)]))


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    kind = draw(st.sampled_from(["bce", "squared", "softmax", "softmax"]))
    if kind == "softmax":
        return SoftmaxCrossEntropy(draw(st.integers(2, 6)))
    return BinaryCrossEntropy() if kind == "bce" else SquaredError()


@st.composite
def networks(draw: st.DrawFn, depth: int = 4, width: int = 9) -> Network:
    heads = tuple(draw(st.lists(losses(), min_size=1, max_size=3)))
    sizes = [draw(st.integers(1, width)) for _ in range(draw(st.integers(1, depth)))]
    sizes.append(sum(loss.outputs for loss in heads))
    dropouts = st.one_of(st.none(), st.none(), st.builds(Dropout, st.sampled_from([1, 26, 128, 150, 192])))
    layers = [
        Layer(
            Linear(f"w{k}", f"b{k}" if draw(st.booleans()) else None, inputs, outputs, draw(st.booleans())),
            draw(activations()) if k else None,
            draw(dropouts),
        )
        for k, (inputs, outputs) in enumerate(pairwise(sizes))
    ]
    return Network(tuple(layers), heads)


VALUES = ["normal", "normal", "small", "small", "uniform", "extreme", "common", "zero"]


def _values(kind: str, rng: np.random.Generator, size: int, top: int) -> NDArray[np.int64]:
    """Weights of one kind: usual ones, and those that an adversary would choose."""
    if kind == "normal":
        return np.clip(rng.normal(0, top / 4, size).round(), -top, top).astype(np.int64)
    if kind == "small":
        return np.clip(rng.normal(0, top / 12, size).round(), -top, top).astype(np.int64)
    if kind == "uniform":
        return rng.integers(-top, top + 1, size)
    if kind == "extreme":
        return rng.choice(np.array([-top, top]), size)
    return top - rng.integers(0, 3, size) if kind == "common" else np.zeros(size, np.int64)


@st.composite
def weights_of(draw: st.DrawFn, network: Network, bits: int = 8) -> Quantised:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = _values(draw(st.sampled_from(VALUES)), rng, network.size, (1 << (bits - 1)) - 1)
    hidden = [
        layer.activation.fixed_exponent or draw(st.integers(2, 9))
        for layer in network.layers[1:]
        if layer.activation
    ]
    inputs = input_exponents(network, tuple(hidden))
    exponents: list[int] = []
    for layer, exponent in zip(network.layers, inputs, strict=True):
        exponents.append(draw(st.integers(3, 8) | st.integers(0, 12)))
        if layer.linear.bias is not None:
            exponents.append(draw(st.integers(0, min(24, exponents[-1] + exponent))))
    return Quantised(values.astype(np.int16), tuple(exponents), tuple(hidden), bits)


def label_space(loss: Loss, rng: np.random.Generator) -> LabelSpace:
    if isinstance(loss, SoftmaxCrossEntropy):
        return LabelSpace.categorical(loss.classes)
    return LabelSpace.binary() if isinstance(loss, BinaryCrossEntropy) else LabelSpace.integers(-2, 3)


@st.composite
def helpers_of(draw: st.DrawFn, network: Network, most: int = 5) -> tuple[Records, ...]:
    """A batch, labels masked as the browser does it, split among two to five helpers."""
    count, rows = (
        draw(st.integers(2, 5)),
        draw(st.sampled_from([*range(1, most + 1), *range(1, most + 1), 0])),
    )
    seed = draw(st.integers(0, 2**32 - 1))
    rng, secret = np.random.default_rng(seed), FixedRandomness(seed.to_bytes(4, "big"))
    spaces = tuple(label_space(loss, rng) for loss in network.losses)
    policy = draw(st.sampled_from([All(), Pair(), Sample(2), Sample(3)]))
    model = Model("tag", (Bytes(network.features),), spaces, policy)
    labels = [rng.choice(np.array(space.values), rows) for space in spaces]
    shown, masks = model.mask(labels, rng.random(rows) < 0.8, secret)
    ids = sharing.random_rows(rows, sharing.ID_BYTES, secret)
    features = rng.choice(
        np.array([0, 1, 128, 255, *rng.integers(0, 256, 5)]), (rows, network.features)
    ).astype(np.uint8)
    shares = sharing.split(masks, ids, Purpose.TRAIN, count, secret)
    expanded = [shares.explicit] + [
        sharing.expand(seeds, ids, Purpose.TRAIN, helper, model.secrets())
        for helper, seeds in enumerate(shares.seeds, start=1)
    ]
    dropout = Seed(b"0123456789abcdef", ids) if network.has_dropout else None
    return tuple(Records(features, shown, share, dropout) for share in expanded)


@st.composite
def cases(draw: st.DrawFn, bits: int = 8) -> Case:
    network = draw(networks())
    psi = draw(st.sampled_from([0.001, 0.1, 1.0, 10.0, 1000.0]))
    fraction, depth = draw(st.sampled_from([8, 14, 20])), draw(st.sampled_from([0, 0, 1, 2, 9]))
    clip = Clip(psi, draw(st.sampled_from(list(Norm))), fraction, depth)
    return Case(network, draw(weights_of(network, bits)), clip, draw(helpers_of(network)))


def add(shares: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return sharing.combine(shares)
