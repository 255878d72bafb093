"""No row is longer than ψ: a search over weights, features and labels, in both norms, on the integer rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.errors import OutOfField, TooWide
from maskedlark.exact.gradient import Engine, Records, gradient
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.exact.plan import plan
from maskedlark.exact.quantise import Quantised

ACTIVATIONS: list[Activation] = [
    Relu(),
    Identity(),
    LeakyRelu(77),
    LeakyRelu(512),
    Elu(256),
    Sigmoid(),
    Tanh(),
]
FEATURES = 6


@st.composite
def adversarial(draw: st.DrawFn) -> tuple[Network, Quantised, Clip, np.ndarray]:
    """Weights with a large common part and a small rest, extreme exponents, extreme features."""
    classes, hidden = draw(st.integers(2, 10)), draw(st.lists(st.integers(1, 24), max_size=2))
    loss: Loss = draw(st.sampled_from([SoftmaxCrossEntropy(classes), BinaryCrossEntropy(), SquaredError()]))
    sizes = [FEATURES, *hidden, loss.outputs]
    activation = draw(st.sampled_from(ACTIVATIONS))
    layers = tuple(
        Layer(Linear(f"w{k}", f"b{k}", sizes[k], sizes[k + 1]), activation if k else None)
        for k in range(len(sizes) - 1)
    )
    network, rng = Network(layers, (loss,)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = _values(draw, rng, network.size)
    exponent = activation.fixed_exponent or draw(st.integers(0, 9))
    exponents = tuple(
        draw(st.sampled_from([0, 1, 4, 8, 12])) if entry.name[0] == "w" else 0 for entry in network.parameters
    )
    psi = draw(st.sampled_from([1e-4, 0.01, 0.3, 1.0, 7.0, 100.0]))
    fraction, depth = draw(st.sampled_from([1, 4, 8, 12, 20])), draw(st.sampled_from([0, 0, 1, 2]))
    clip = Clip(psi, draw(st.sampled_from(list(Norm))), fraction, depth)
    features = rng.choice(np.array([0, 1, 255, 255, 200]), (8, FEATURES)).astype(np.uint8)
    return network, Quantised(values, exponents, (exponent,) * len(hidden)), clip, features


def _values(draw: st.DrawFn, rng: np.random.Generator, size: int) -> np.ndarray:
    common = draw(st.sampled_from([0, 60, 100, 127, -127]))
    spread = draw(st.sampled_from([0, 1, 3, 27, 127]))
    drawn = common + rng.integers(-spread, spread + 1, size)
    return np.clip(drawn, -127, 127).astype(np.int16)


def longest(network: Network, weights: Quantised, clip: Clip, features: np.ndarray) -> float:
    """The longest row of all records and labels, in units of ψ, from exact integers."""
    loss, exponent = network.losses[0], plan(network, weights, clip).exponent
    low, high = max(loss.label_range[0], -3), min(loss.label_range[1], 100)
    labels = range(low, high + 1) if not isinstance(loss, SquaredError) else (-(2**31), -1, 0, 1, 2**31)
    worst = 0.0
    for record in features:
        for label in labels:
            one = Records(record[None], [np.array([[label]])], np.ones((1, 1), np.int64))
            row = field.to_signed(gradient(network, weights, one, clip)).tolist()
            power = (
                sum(map(abs, row))
                if clip.norm is Norm.L1
                else math.isqrt(4**64 * sum(g * g for g in row)) + 1
            )
            units = 1 if clip.norm is Norm.L1 else 2**64
            bound = clip.psi * 2.0**exponent
            assert power <= bound * units * (1 if clip.norm is Norm.L1 else 1 + 2.0**-50)
            worst = max(worst, power / units / bound)
    return worst


def search(case: tuple[Network, Quantised, Clip, np.ndarray]) -> None:
    network, weights, clip, features = case
    try:
        plan(network, weights, clip).check_range(1)
    except (OutOfField, TooWide):
        return
    target(longest(network, weights, clip, features))


def quiet(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(adversarial())
@quiet(100)
def test_no_row_exceeds_the_bound(case: tuple[Network, Quantised, Clip, np.ndarray]) -> None:
    search(case)


@pytest.mark.long
@given(adversarial())
@quiet(2500)
def test_no_row_exceeds_the_bound_in_a_long_search(case: tuple[Network, Quantised, Clip, np.ndarray]) -> None:
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


def test_truncation_alone_would_break_the_bound() -> None:
    """Softmax errors sum to 0, truncated ones do not; weights with a large common part amplify the rest."""
    layers = (Layer(Linear("w0", "b0", FEATURES, 24)), Layer(Linear("w1", "b1", 24, 10), Relu()))
    network, rng = Network(layers, (SoftmaxCrossEntropy(10),)), np.random.default_rng(4)
    parts = [np.full(24 * FEATURES, 48), np.zeros(24), 127 - rng.integers(0, 2, 240), np.zeros(10)]
    weights = Quantised(np.concatenate(parts).astype(np.int16), (8, 0, 0, 0), (3,))
    features, clip = np.full((1, FEATURES), 255, np.uint8), Clip(0.3, Norm.L2, fraction=8)
    assert longest(network, weights, clip, features) <= 1.0
    careless = plan(network, weights, clip)
    careless = replace(careless, heads=(replace(careless.heads[0], truncation=0.0),))
    one = Records(features, [np.array([[3]])], np.ones((1, 1), np.int64))
    row = field.to_signed(Engine(careless, torch.device("cpu")).share(one, 1)).tolist()
    assert math.sqrt(sum(g * g for g in row)) > 10 * careless.row_top
