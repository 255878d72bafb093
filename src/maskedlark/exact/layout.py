"""Exponents and bounds of one step, from the network, its weights and the clip alone. Run by every helper.

Nothing here depends on a record. Every sum is bounded before the first product; sums that float64 could not
hold exactly, or that with noise could leave the field, are refused here.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.exact import quantise
from maskedlark.exact.clip import SAFETY, Clip, Norm
from maskedlark.exact.errors import OutOfField, TooWide, WeightsDoNotFit
from maskedlark.exact.losses import OneOutput
from maskedlark.exact.network import Network
from maskedlark.exact.operations import TOP
from maskedlark.exact.quantise import Quantised
from maskedlark.exact.tables import PROBABILITY_BITS

EXACT_BITS = 52
"""Float64 holds every integer up to 2^53; one bit is kept for the rounding's half."""
UNIT_EXPONENT = 16
"""The most fractional bits of a one-output row's error."""
COARSE_BITS = 13
"""A softmax row's norm is computed from an error in units of 2^-13."""
MAX_BITS = 21
"""A 31-bit limb times an error of this many bits stays below 2^52."""
_MAX_REACH = 400
"""Scales between 2^-400 and 2^400 have squares inside float64."""


@dataclass(frozen=True)
class LayerLayout:
    """One linear layer: its weights as (outputs, inputs), its exponents and the bounds of its sums."""

    name: str
    """The weight's name, for error messages."""
    weight: NDArray[np.int16]
    bias: NDArray[np.int64]
    """In units of the sums; zeros without a bias."""
    has_bias: bool
    weight_exponent: int
    input_exponent: int
    slope_bits: int
    """The slope bits of activation and dropout before this layer."""
    slope_top: int

    def __post_init__(self) -> None:
        if self.sum_top >= 1 << EXACT_BITS:
            bits = self.sum_top.bit_length()
            raise TooWide(f"{self.name} could sum up to 2^{bits}; make the layer narrower")

    @cached_property
    def weight_top(self) -> int:
        """The largest magnitude of a weight."""
        return max(int(self.weight.max()), -int(self.weight.min()))

    @cached_property
    def column_sum(self) -> int:
        """The largest sum of magnitudes of one input's weights."""
        return sums(self.weight, axis=0)

    @cached_property
    def sum_top(self) -> int:
        """The bound on every sum of this layer, partial or complete."""
        return TOP * sums(self.weight, axis=1) + int(np.abs(self.bias).max())

    @property
    def sum_exponent(self) -> int:
        """The exponent of the sums."""
        return self.weight_exponent + self.input_exponent


@dataclass(frozen=True)
class ForwardLayout:
    """What the forward pass needs; sufficient for evaluation."""

    network: Network
    layers: tuple[LayerLayout, ...]


@dataclass(frozen=True)
class LabelLayout:
    """One label's errors in the backward pass, one entry per layer, first layer first."""

    exponents: tuple[int, ...]
    """The exponents of the errors in the clear."""
    shifts: tuple[int, ...]
    """By how many bits a layer's error is rounded."""
    masked_exponents: tuple[int, ...]
    entrance: int = 0
    """The layer at which masks enter: it and those above are clipped in the clear, those below are masked."""
    gains: tuple[float, ...] = ()
    """How much an error of norm 1 at the entrance can grow on its way back to each layer."""
    slack: float = 0.0
    """ω: how much the rounded norm may underestimate, in units of Λ."""
    truncation: float = 0.0
    """What truncation may add to a row, in units of Λ."""


@dataclass(frozen=True)
class StepLayout(ForwardLayout):
    """One step: every exponent and bound."""

    clip: Clip
    heads: tuple[LabelLayout, ...]

    @cached_property
    def masked_exponents(self) -> tuple[int, ...]:
        """The exponent of every layer's masked error, all labels together."""
        return tuple(map(max, zip(*(head.masked_exponents for head in self.heads), strict=True)))

    @cached_property
    def parameter_exponents(self) -> tuple[int, ...]:
        """The exponent that each parameter's gradient is computed in."""
        exponents = []
        for layer, masked in zip(self.layers, self.masked_exponents, strict=True):
            exponents += [masked + layer.input_exponent, *([masked] if layer.has_bias else [])]
        return tuple(exponents)

    @cached_property
    def exponent(self) -> int:
        """The gradient is its integers times 2^-exponent: one exponent for the whole vector."""
        return max(self.parameter_exponents)

    @cached_property
    def row_top(self) -> int:
        """The bound on a row's norm, in the gradient's integers."""
        return math.ceil(Fraction(self.clip.psi) * (1 << self.exponent))

    def check_range(self, records: int, noise_tail: int = 0) -> None:
        """Refuse a sum of `records` rows that, with noise up to `noise_tail`, could leave the field."""
        needed = records * self.row_top + noise_tail
        if needed > field.HALF:
            over = needed.bit_length() - field.HALF.bit_length() + 1
            raise OutOfField(
                f"{records} rows of exponent {self.exponent} and their noise could leave the field by "
                f"{over} bits; lower the fraction, the weights' exponents, the batch or the bound, or, for "
                "softmax, raise the clip's depth"
            )


def forward_layout(network: Network, weights: Quantised) -> ForwardLayout:
    """The exponents and bounds of the forward pass alone."""
    quantise.check(network, weights)
    return ForwardLayout(network, _layers(network, weights))


def _layers(network: Network, weights: Quantised) -> tuple[LayerLayout, ...]:
    entries = iter(zip(network.parameters, weights.exponents, strict=True))
    inputs = quantise.input_exponents(network, weights.activations)
    layouts = []
    for layer, input_exponent in zip(network.layers, inputs, strict=True):
        entry, exponent = next(entries)
        weight = weights.values[entry.place].reshape(entry.shape)
        bias, has_bias = np.zeros(layer.linear.outputs, np.int64), layer.linear.bias is not None
        if has_bias:
            place, bias_exponent = next(entries)
            if (shift := exponent + input_exponent - bias_exponent) < 0:
                raise WeightsDoNotFit(
                    f"{place.name} is finer than its layer's sums; lower its exponent by {-shift}"
                )
            bias = weights.values[place.place].astype(np.int64) << shift
        before = [operation for operation in (layer.activation, layer.dropout) if operation]
        bits = sum(operation.slope_bits for operation in before)
        top = math.prod(operation.slope_top for operation in before)
        turned = weight.T if layer.linear.transposed else weight
        layouts.append(LayerLayout(entry.name, turned, bias, has_bias, exponent, input_exponent, bits, top))
    return tuple(layouts)


def sums(weight: NDArray[np.int16], axis: int) -> int:
    """The largest sum of magnitudes along an axis: in 32 bits, twice as fast, where they hold it."""
    narrow = weight.shape[axis] < 1 << 16
    return int(np.abs(weight).sum(axis=axis, dtype=np.int32 if narrow else np.int64).max())


def step_layout(network: Network, weights: Quantised, clip: Clip) -> StepLayout:
    """Every exponent and bound of one step."""
    layers = forward_layout(network, weights).layers
    heads = []
    for loss, columns in zip(network.losses, network.columns, strict=True):
        # As if the label were the only one: the output layer has only its rows.
        own = (*layers[:-1], replace(layers[-1], weight=layers[-1].weight[columns]))
        heads.append(_one_output(own, clip) if isinstance(loss, OneOutput) else _softmax(own, clip))
    return StepLayout(network, layers, clip, tuple(heads))


def _one_output(layers: tuple[LayerLayout, ...], clip: Clip) -> LabelLayout:
    exponents, shifts = _errors(layers, (0, 1, 1), UNIT_EXPONENT)
    return LabelLayout(exponents, shifts, tuple(clip.fraction + exponent for exponent in exponents))


def _softmax(layers: tuple[LayerLayout, ...], clip: Clip) -> LabelLayout:
    outputs, last = len(layers[-1].weight), len(layers) - 1
    entrance = max(0, last - clip.depth)
    bits = PROBABILITY_BITS if clip.depth else COARSE_BITS
    exponents, shifts = _errors(layers, (bits, 1 << bits, (2 << bits) + outputs), None)
    gains = _gains(layers, entrance, clip.norm)
    slack = 0.0 if clip.depth else clip.norm.of_ones(outputs) * 2.0 ** -(COARSE_BITS + 1)
    for layer in range(entrance - 1, -1, -1):
        if shifts[layer]:
            width = clip.norm.of_ones(len(layers[layer].weight))
            slack += 2.0 ** -(exponents[layer] + 1) * width / gains[layer]
    truncation = clip.norm.of_ones(len(layers[entrance].weight)) * 2.0**-clip.fraction * SAFETY
    if clip.depth:
        # In layers that are masked directly, truncation only makes numbers smaller.
        gains = (*gains[:entrance], *[0.0] * (last + 1 - entrance))
    masked = [clip.fraction] * (last + 1 - entrance)
    for above in layers[entrance:0:-1]:
        masked.append(masked[-1] + above.weight_exponent + above.slope_bits)
    return LabelLayout(exponents, shifts, tuple(masked[::-1]), entrance, gains, slack, truncation)


def _errors(
    layers: tuple[LayerLayout, ...], start: tuple[int, int, int], max_exponent: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Exponents and shifts, from the output's error (exponent, largest number, largest sum) down."""
    exponent, top, total = start
    steps = [(exponent, 0)]
    for number in range(len(layers) - 1, 0, -1):
        layer = layers[number]
        product = layer.column_sum * top
        if number == len(layers) - 1:
            product = min(product, layer.weight_top * total)
        top, exponent = product * layer.slope_top, exponent + layer.weight_exponent + layer.slope_bits
        if top >= 1 << EXACT_BITS:
            raise TooWide(f"{layer.name}: errors could reach 2^{top.bit_length()}; use 8-bit weights")
        # Rounded by this many bits, so that the error fits.
        shift = max(0, (max(top, 1) - 1).bit_length() - _room(layers, number - 1))
        if max_exponent is not None:
            shift = max(shift, exponent - max_exponent)
        top, exponent = -(-top >> shift), exponent - shift
        if abs(exponent) > _MAX_REACH:
            raise TooWide(f"{layer.name}: errors would have exponent {exponent}; use fewer layers")
        steps.append((exponent, shift))
    exponents, shifts = zip(*steps[::-1], strict=True)
    return exponents, shifts


def _room(layers: tuple[LayerLayout, ...], number: int) -> int:
    """How many bits a layer's error may have, so that its squares and its next product add up exactly."""
    layer = layers[number]
    room = min(MAX_BITS, (EXACT_BITS - (len(layer.weight) - 1).bit_length()) // 2)
    if number:
        room = min(room, EXACT_BITS - 1 - (layer.column_sum * layer.slope_top).bit_length())
    if room < 0:
        raise TooWide(f"{layer.name}: its products leave no room for an error; make the layer narrower")
    return room


def _gains(layers: tuple[LayerLayout, ...], entrance: int, norm: Norm) -> tuple[float, ...]:
    """How much an error of norm 1 at the entrance can grow, for the entrance and every layer below."""
    gains = [1.0]
    for number in range(entrance, 0, -1):
        layer = layers[number]
        gain = _gain(layer.weight, norm) * 2.0**-layer.weight_exponent
        gains.append(gains[-1] * gain * (layer.slope_top * 2.0**-layer.slope_bits))
        if gains[-1] and abs(math.log2(gains[-1])) > _MAX_REACH:
            raise TooWide(f"{layer.name}: an error could grow or shrink by 2^{_MAX_REACH}; use fewer layers")
    return tuple(gains[::-1])


def _gain(weight: NDArray[np.int16], norm: Norm) -> float:
    """How much a weight matrix can lengthen an error on its way back, in the weights' integers."""
    rows = sums(weight, axis=1)
    if norm is Norm.L1:
        return float(rows)
    squares = int((weight.astype(np.int64) ** 2).sum())
    return math.sqrt(min(squares, rows * sums(weight, axis=0)))
