"""No row is longer than ψ: a search over weights, features and labels, in both norms, on the integer rows."""

import math
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings, target
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.errors import OutOfField, TooWide, WeightsDoNotFit
from maskedlark.exact.forward import Seed
from maskedlark.exact.gradient import GradientEngine, Records, gradient
from maskedlark.exact.layout import step_layout
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Dropout, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.exact.quantise import Quantised

ACTIVATIONS: list[Activation] = [
    Relu(),
    Identity(),
    LeakyRelu(77),
    LeakyRelu(1024),
    Elu(256),
    Sigmoid(),
    Tanh(),
]
LOSSES: list[Loss] = [
    SoftmaxCrossEntropy(2),
    SoftmaxCrossEntropy(3),
    SoftmaxCrossEntropy(10),
    BinaryCrossEntropy(),
    SquaredError(),
]
FEATURES = 6

Case = tuple[Network, Quantised, Clip, np.ndarray]


@st.composite
def adversarial(draw: st.DrawFn) -> Case:
    """Weights with a large common part and a small rest, extreme exponents, extreme features, many labels."""
    losses = tuple(draw(st.lists(st.sampled_from(LOSSES), min_size=1, max_size=3)))
    hidden = draw(st.lists(st.integers(1, 24), max_size=2))
    sizes = [FEATURES, *hidden, sum(loss.outputs for loss in losses)]
    activation = draw(st.sampled_from(ACTIVATIONS))
    dropout = draw(st.sampled_from([None, None, Dropout(64), Dropout(128)]))
    layers = tuple(
        Layer(
            Linear(f"w{k}", draw(st.sampled_from([f"b{k}", None])), sizes[k], sizes[k + 1]),
            activation if k else None,
            dropout,
        )
        for k in range(len(sizes) - 1)
    )
    network, rng = Network(layers, losses), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bits = draw(st.sampled_from([8, 8, 16]))
    exponent = activation.fixed_exponent or draw(st.sampled_from([4, 6, 8, 9, 12]))
    exponents = tuple(
        draw(st.sampled_from([0, 4, 6, 8, 8, 12] if bits == 8 else [8, 12, 14, 16]))
        if entry.name[0] == "w"
        else 0
        for entry in network.parameters
    )
    fraction, depth = draw(st.sampled_from([4, 8, 12, 20, 20])), draw(st.sampled_from([0, 0, 1, 2]))
    # Below some units of 2^-fraction, truncation leaves a row nothing.
    psi = draw(st.sampled_from([0.3, 1.0, 7.0, 100.0, 1000.0])) * 2.0 ** max(0, 12 - fraction)
    clip = Clip(psi, draw(st.sampled_from(list(Norm))), fraction, depth)
    features = rng.choice(np.array([0, 1, 255, 255, 200]), (4, FEATURES)).astype(np.uint8)
    values = _values(draw, rng, network.size, (1 << (bits - 1)) - 1)
    return network, Quantised(values, exponents, (exponent,) * len(hidden), bits), clip, features


def _values(draw: st.DrawFn, rng: np.random.Generator, size: int, top: int) -> np.ndarray:
    """A common part and a spread, each in parts of the largest weight."""
    common = draw(st.sampled_from([0, 0, 0.02, 0.5, 1.0, -1.0]))
    spread = draw(st.sampled_from([0.01, 0.03, 0.2, 1.0]))
    drawn = (top * (common + spread * rng.uniform(-1, 1, size))).round()
    return np.clip(drawn, -top, top).astype(np.int16)


def labels_of(loss: Loss) -> list[int]:
    if isinstance(loss, SquaredError):
        return [-(2**31), -1, 0, 2**31]
    return list(range(loss.outputs)) if isinstance(loss, SoftmaxCrossEntropy) else [0, 1]


def power_of(row: list[int], norm: Norm) -> int:
    """The row's norm in units of 2^-64, rounded up."""
    if norm is Norm.L1:
        return sum(map(abs, row)) << 64
    return math.isqrt(4**64 * sum(g * g for g in row)) + 1


def longest(network: Network, weights: Quantised, clip: Clip, features: np.ndarray) -> float:
    """The longest row of all records and labels, in units of ψ, from exact integers.

    Each label's candidates go by themselves, and then all labels' together: rows may be parallel.
    """
    bound = Fraction(clip.psi) * 2 ** step_layout(network, weights, clip).exponent
    shown = [labels_of(loss) for loss in network.losses]
    together = [[column[n % len(column)] for column in shown] for n in range(max(map(len, shown)))]
    worst = 0.0
    for number, record in enumerate(features):
        seed = Seed(b"0123456789abcdef", np.full((1, 16), number, np.uint8))
        for labels in together:
            candidates = [np.array([[label]]) for label in labels]
            one = Records(record[None], candidates, np.ones((1, len(labels)), np.int64), seed)
            power = power_of(field.to_signed(gradient(network, weights, one, clip)).tolist(), clip.norm)
            assert power <= bound * 2**64 * (1 + Fraction(1, 2**50))
            worst = max(worst, float(power / (bound * 2**64)))
    return worst


def search(case: Case) -> None:
    network, weights, clip, features = case
    try:
        GradientEngine(step_layout(network, weights, clip), torch.device("cpu"))
        step_layout(network, weights, clip).check_range(1)
    except (OutOfField, TooWide, WeightsDoNotFit):
        reject()
    target(longest(network, weights, clip, features))


def quiet(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@given(adversarial())
@quiet(100)
def test_no_row_exceeds_the_bound(case: Case) -> None:
    search(case)


@pytest.mark.long
@given(adversarial())
@quiet(2500)
def test_no_row_exceeds_the_bound_in_a_long_search(case: Case) -> None:
    search(case)


@pytest.mark.parametrize("norm", list(Norm))
def test_the_bound_is_reached(norm: Norm) -> None:
    """A bound that no row comes near would be kept by rows of zeros too."""
    layers = (Layer(Linear("w0", "b0", FEATURES, 12)), Layer(Linear("w1", "b1", 12, 5), Relu()))
    network = Network(layers, (SoftmaxCrossEntropy(5),))
    rng = np.random.default_rng(9)
    weights = Quantised(rng.integers(-127, 128, network.size).astype(np.int16), (8, 8, 6, 6), (5,))
    features = rng.integers(0, 256, (20, FEATURES)).astype(np.uint8)
    assert longest(network, weights, Clip(1.0, norm), features) > 0.99


@pytest.mark.parametrize("norm", list(Norm))
def test_parallel_rows_of_several_labels_share_the_bound(norm: Norm) -> None:
    """Labels whose rows add up reach ψ together; each with ψ of its own would reach more."""
    layers = (Layer(Linear("w0", "b0", FEATURES, 4)), Layer(Linear("w1", None, 4, 3), Relu()))
    network = Network(layers, (SquaredError(),) * 3)
    parts = [np.full(4 * FEATURES, 40), np.zeros(4), np.full(12, 127)]
    weights = Quantised(np.concatenate(parts).astype(np.int16), (8, 0, 0), (4,))
    features, clip = np.full((1, FEATURES), 100, np.uint8), Clip(1.0, norm)
    assert 0.9 < longest(network, weights, clip, features) <= 1.0
    with mock.patch.object(Clip, "share", lambda own, labels: own.psi), pytest.raises(AssertionError):
        longest(network, weights, clip, features)


def test_truncation_alone_would_break_the_bound() -> None:
    """Softmax errors sum to 0, truncated ones do not; weights with a large common part amplify the rest."""
    layers = (Layer(Linear("w0", "b0", FEATURES, 24)), Layer(Linear("w1", "b1", 24, 10), Relu()))
    network, rng = Network(layers, (SoftmaxCrossEntropy(10),)), np.random.default_rng(4)
    parts = [np.full(24 * FEATURES, 48), np.zeros(24), 127 - rng.integers(0, 2, 240), np.zeros(10)]
    weights = Quantised(np.concatenate(parts).astype(np.int16), (8, 0, 0, 0), (3,))
    features, clip = np.full((1, FEATURES), 255, np.uint8), Clip(0.3, Norm.L2, fraction=8)
    assert longest(network, weights, clip, features) <= 1.0
    careless = step_layout(network, weights, clip)
    careless = replace(careless, heads=(replace(careless.heads[0], truncation=0.0),))
    one = Records(features, [np.array([[3]])], np.ones((1, 1), np.int64))
    row = field.to_signed(GradientEngine(careless, torch.device("cpu")).share(one, 1)).tolist()
    assert math.sqrt(sum(g * g for g in row)) > 10 * careless.row_top
