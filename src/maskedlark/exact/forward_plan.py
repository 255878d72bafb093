"""Exponents and bounds of the forward pass, from the network and its weights alone. Run by every helper.

Every sum's bound is known before the first product; what float64 could not hold exactly is refused here.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.exact import quantise
from maskedlark.exact.errors import TooWide, WeightsDoNotFit
from maskedlark.exact.network import Layer, Network
from maskedlark.exact.operations import TOP
from maskedlark.exact.quantise import Quantised

EXACT_BITS = 52
"""Float64 holds every integer up to 2^53; one bit is kept for the rounding's half."""


@dataclass(frozen=True)
class LayerPlan:
    """One linear layer: its weights as (outputs, inputs), its exponents and the bounds of its sums."""

    name: str
    """The weight's, for errors."""
    weight: NDArray[np.int16]
    bias: NDArray[np.int64]
    """In units of the sums; zeros where there is none."""
    has_bias: bool
    weight_exponent: int
    input_exponent: int
    slope_bits: int
    """Of activation and dropout before this layer."""
    slope_top: int
    weight_top: int
    sum_top: int
    """No sum of this layer, partial or whole, is larger."""

    @property
    def sum_exponent(self) -> int:
        """The exponent of the sums."""
        return self.weight_exponent + self.input_exponent


@dataclass(frozen=True)
class ForwardPlan:
    """What the forward pass needs; enough to evaluate."""

    network: Network
    layers: tuple[LayerPlan, ...]


def forward_plan(network: Network, weights: Quantised) -> ForwardPlan:
    """The exponents and bounds of the forward pass alone."""
    quantise.check(network, weights)
    return ForwardPlan(network, _layers(network, weights))


def _layers(network: Network, weights: Quantised) -> tuple[LayerPlan, ...]:
    entries = iter(zip(network.parameters, weights.exponents, strict=True))
    inputs = quantise.input_exponents(network, weights.activations)
    found = []
    for layer, input_exponent in zip(network.layers, inputs, strict=True):
        entry, exponent = next(entries)
        weight = weights.values[entry.place].reshape(entry.shape)
        bias = np.zeros(layer.linear.outputs, np.int64)
        if layer.linear.bias is not None:
            place, bias_exponent = next(entries)
            if (shift := exponent + input_exponent - bias_exponent) < 0:
                raise WeightsDoNotFit(
                    f"{place.name} is finer than its layer's sums; lower its exponent by {-shift}"
                )
            bias = weights.values[place.place].astype(np.int64) << shift
        found.append(
            _layer(layer, weight.T if layer.linear.transposed else weight, bias, exponent, input_exponent)
        )
    return tuple(found)


def _layer(
    layer: Layer, weight: NDArray[np.int16], bias: NDArray[np.int64], exponent: int, input_exponent: int
) -> LayerPlan:
    before = [operation for operation in (layer.activation, layer.dropout) if operation]
    top = TOP * sums(weight, axis=1) + int(np.abs(bias).max())
    if top >= 1 << EXACT_BITS:
        raise TooWide(f"{layer.linear.weight} could sum up to 2^{top.bit_length()}; make the layer narrower")
    bits = sum(operation.slope_bits for operation in before)
    factor = math.prod(operation.slope_top for operation in before)
    largest = int(np.abs(weight).max())
    own, has_bias = layer.linear.weight, layer.linear.bias is not None
    return LayerPlan(own, weight, bias, has_bias, exponent, input_exponent, bits, factor, largest, top)


def sums(weight: NDArray[np.int16], axis: int) -> int:
    """The largest sum of magnitudes along an axis."""
    return int(np.abs(weight).sum(axis=axis, dtype=np.int64).max())
