"""Weights as integers: the largest exponent that fits, capped, and everything else refused."""

from dataclasses import replace

import numpy as np
import pytest

from maskedlark.exact import quantise as module
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import OutOfField, WeightsDoNotFit
from maskedlark.exact.layout import step_layout
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.quantise import Quantised, bits_for, check, quantise
from tests.unit.exact.models import dense, random_parameters

network = dense((4, 3, 1), BinaryCrossEntropy())
parameters = random_parameters(network, 0)


@pytest.mark.parametrize("bits", [8, 16])
def test_every_value_is_within_half_a_step(bits: int) -> None:
    weights = quantise(network, parameters, (7,), bits)
    check(network, weights)
    for entry, exponent in zip(network.parameters, weights.exponents, strict=True):
        back = weights.values[entry.place].reshape(entry.shape) * 2.0**-exponent
        assert np.abs(back - parameters[entry.name]).max() <= 2.0 ** -(exponent + 1)


@pytest.mark.parametrize("largest", [0.0, 1e-9, 0.5, 0.99, 1.0, 63.6, 126.9, 127.0])
def test_the_largest_weight_fits(largest: float) -> None:
    scaled = parameters | {"w0": np.full((3, 4), -largest)}
    weights = quantise(network, scaled, (7,))
    check(network, weights)
    assert weights.exponents[0] == module.FIRST_CAP or np.abs(weights.values[:12]).max() >= 63


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("bias", [0.0, 1e-12])
def test_a_zero_bias_is_taken_by_a_helper(bits: int, bias: float) -> None:
    small = parameters | {"b0": np.full(3, bias), "b1": np.full(1, bias)}
    step_layout(network, quantise(network, small, (10,), bits, cap=12), Clip(1.0))


@pytest.mark.parametrize("bad", [128.0, float("inf"), float("nan")])
def test_weights_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(WeightsDoNotFit, match="w0"):
        quantise(network, parameters | {"w0": np.full((3, 4), bad)}, (7,))


@pytest.mark.parametrize(("largest", "bits"), [(0.0, 8), (127.0, 8), (127.1, 16), (405.7, 16), (1e9, 16)])
def test_weights_take_as_few_bits_as_hold_them(largest: float, bits: int) -> None:
    assert bits_for({"a": np.array([0.5]), "b": np.array([-largest, 1.0])}) == bits
    assert bits_for({}) == 8


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(WeightsDoNotFit, match="w0"):
        quantise(network, {}, (7,))


good = quantise(network, parameters, (7,))


@pytest.mark.parametrize(
    "bad",
    [
        replace(good, values=good.values[:-1]),
        replace(good, values=good.values.astype(np.int64)),
        replace(good, values=np.full_like(good.values, 128)),
        replace(good, values=np.full_like(good.values, -128)),
        replace(good, bits=9),
        replace(good, exponents=good.exponents[:-1]),
        replace(good, exponents=(-1, *good.exponents[1:])),
        replace(good, exponents=(25, *good.exponents[1:])),
        replace(good, activations=()),
    ],
)
def test_a_helper_refuses_what_is_not_the_networks(bad: Quantised) -> None:
    with pytest.raises(WeightsDoNotFit):
        check(network, bad)


def test_the_range_is_checked_before_computing_and_the_noise_counts() -> None:
    step = step_layout(network, good, Clip(1.0))
    most = (2**60 - 1) // step.row_top
    step.check_range(most)
    with pytest.raises(OutOfField, match="field"):
        step.check_range(most + 1)
    with pytest.raises(OutOfField, match="noise"):
        step.check_range(most, noise_tail=step.row_top)


def test_a_model_too_deep_for_the_field_says_what_to_change() -> None:
    deep = dense((4, 5, 5, 5, 5, 3), SoftmaxCrossEntropy(3))
    weights = quantise(deep, random_parameters(deep, 1), (7, 7, 7, 7))
    with pytest.raises(OutOfField, match="exponents"):
        step_layout(deep, weights, Clip(1.0)).check_range(1000)
