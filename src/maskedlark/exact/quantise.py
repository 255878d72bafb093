"""Weights as they are sent: small integers with a power-of-two exponent per tensor. Run by the ad server.

The ad server keeps float weights and sends quantised ones; gradients are taken at the quantised point. It
also chooses the activations' exponents, from a sample of features: an exponent that depended on the batch
would make one record's row depend on another's.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from maskedlark.exact.errors import Saturated, WeightsDoNotFit
from maskedlark.exact.network import FEATURE_EXPONENT, Network, Parameter
from maskedlark.exact.operations import TOP
from maskedlark.randomness import FixedRandomness

FIRST_CAP = 12
"""The first layer's exponent never enters a gradient's scale, so it may be larger than the others'."""
CAP = 10
"""Larger exponents would use up the field: every layer adds its own on the way back."""
MAX_EXPONENT = 24

FloatArrays = Mapping[str, NDArray[np.floating]]


@dataclass(frozen=True, eq=False)
class Quantised:
    """One step's weights: all that the ad server sends to every helper."""

    values: NDArray[np.int16]
    """Flat, in the order of `Network.parameters`."""
    exponents: tuple[int, ...]
    """One per parameter: a value v represents v · 2^-exponent."""
    activations: tuple[int, ...]
    """One for every layer but the first: the exponent of its activation's 8-bit output."""
    bits: int = 8

    @property
    def top(self) -> int:
        """The largest magnitude of a value."""
        return (1 << (self.bits - 1)) - 1


def quantise(
    network: Network, parameters: FloatArrays, activations: tuple[int, ...], bits: int = 8, cap: int = CAP
) -> Quantised:
    """Float weights as integers, each tensor with the largest exponent at which it fits, up to a cap."""
    if bits not in (8, 16):
        raise WeightsDoNotFit(f"weights travel as 8-bit or 16-bit integers, not {bits}-bit")
    values, exponents = np.empty(network.size, np.int16), []
    inputs = input_exponents(network, activations)
    spare = bits - 8  # Wider weights have that many more fractional bits.
    place = iter(network.parameters)
    for number, layer in enumerate(network.layers):
        entry = next(place)
        most = (cap if number else max(cap, FIRST_CAP)) + spare
        exponents.append(_quantise_into(values, entry, parameters, bits, most))
        if layer.linear.bias is not None:
            # A bias is added to sums, so it must not be finer than they are, nor finer than helpers accept.
            most, entry = min(MAX_EXPONENT, exponents[-1] + inputs[number]), next(place)
            exponents.append(_quantise_into(values, entry, parameters, bits, most))
    return Quantised(values, tuple(exponents), activations, bits)


def finest(network: Network, bits: int = 8) -> Quantised:
    """Zeros, which get the largest exponents of all weights: no others' gradients need more of the field."""
    zeros = {entry.name: np.zeros(entry.shape) for entry in network.parameters}
    return quantise(network, zeros, calibrate(network, zeros, stand_in((1,) * network.features)), bits)


def bits_for(parameters: FloatArrays) -> int:
    """The fewest bits that hold these weights; 16 if none do: those are refused later."""
    largest = max((float(np.abs(each).max(initial=0.0)) for each in parameters.values()), default=0.0)
    return 8 if largest <= _top(8) else 16


def _top(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def dequantise(network: Network, weights: Quantised) -> dict[str, NDArray[np.float64]]:
    """The numbers that quantised weights stand for, by name."""
    return {
        entry.name: weights.values[entry.place].reshape(entry.shape).astype(np.float64) * 2.0**-exponent
        for entry, exponent in zip(network.parameters, weights.exponents, strict=True)
    }


def _quantise_into(
    values: NDArray[np.int16], entry: Parameter, parameters: FloatArrays, bits: int, most: int
) -> int:
    name, size = entry.name, math.prod(entry.shape)
    if name not in parameters or parameters[name].size != size:
        raise WeightsDoNotFit(f"{name} needs an array of {size} numbers")
    tensor = np.asarray(parameters[name], np.float64).ravel()
    top = _top(bits)
    largest = float(np.abs(tensor).max(initial=0.0))
    if not largest <= top:  # NaN fails this too.
        raise WeightsDoNotFit(f"{name} holds {largest}; {bits}-bit weights reach {top}: {_remedy(bits)}")
    # The largest exponent with largest · 2^exponent < top + 1/2, so that rounding stays within top.
    exponent = most if largest == 0 else min(most, math.ceil(math.log2((top + 0.5) / largest)) - 1)
    values[entry.place] = np.floor(tensor * 2.0**exponent + 0.5)
    return exponent


def _remedy(bits: int) -> str:
    wider = "take bits = 16, or " if bits == 8 else ""
    return (
        f"{wider}take a model whose weights were kept small (Ridge, weight decay), or start from smaller ones"
    )


def check(network: Network, weights: Quantised) -> None:
    """Refuse weights that do not match the network or are out of range. Run by every helper, each step."""
    values, counts = weights.values, (len(weights.exponents), len(weights.activations))
    if weights.bits not in (8, 16) or values.dtype != np.int16 or values.shape != (network.size,):
        raise WeightsDoNotFit(f"the network takes {network.size} integers of 8 or 16 bits, in an int16 array")
    if int(values.max()) > weights.top or int(values.min()) < -weights.top:
        raise WeightsDoNotFit(f"{weights.bits}-bit weights lie within ±{weights.top}; quantise them again")
    if counts != (len(network.parameters), len(network.layers) - 1):
        raise WeightsDoNotFit("one exponent per parameter and one per hidden layer, no more and no fewer")
    for exponent in (*weights.exponents, *weights.activations):
        if not 0 <= exponent <= MAX_EXPONENT:
            raise WeightsDoNotFit(f"exponents lie within 0 … {MAX_EXPONENT}, not {exponent}")
    for layer, exponent in zip(network.layers[1:], weights.activations, strict=True):
        assert layer.activation is not None
        fixed = layer.activation.fixed_exponent
        if fixed is not None and exponent != fixed:
            raise WeightsDoNotFit(f"{layer.activation} gives numbers of exponent {fixed}, not {exponent}")
    if min(input_exponents(network, weights.activations)) < 0:
        raise WeightsDoNotFit("a dropout makes an activation's exponent negative; choose a larger exponent")


def input_exponents(network: Network, activations: tuple[int, ...]) -> list[int]:
    """The exponent of every linear layer's 8-bit input."""
    before = (FEATURE_EXPONENT, *activations)
    return [
        exponent - (layer.dropout.raised if layer.dropout else 0)
        for layer, exponent in zip(network.layers, before, strict=True)
    ]


@cache
def stand_in(widths: tuple[int, ...]) -> NDArray[np.uint8]:
    """Made-up rows to calibrate with, of columns of so many bytes: of several, one is 255, as in one-hot."""
    rng, rows, columns = FixedRandomness(b"maskedlark calibration"), 256, []
    share = rng.unit(rows)[:, None]  # Of single bytes that are 255: columns may rise together.
    for width in widths:
        place, chance = rng.below(width, rows)[:, None], share if width == 1 else 1.0
        columns.append((place == np.arange(width)) & (rng.unit(rows)[:, None] < chance))
    return 255 * np.concatenate(columns, axis=1, dtype=np.uint8)


def calibrate(
    network: Network, parameters: FloatArrays, features: NDArray[np.uint8], clamp: bool = True
) -> tuple[int, ...]:
    """The activations' exponents for these weights, from a sample of features. Run by the ad server.

    Each is the largest, 0 … CAP, at which the sample fits in 8 bits. Where it fits at none, numbers are
    clamped, with a warning, or the weights are refused. Floats suffice: the choice is sent.
    """
    numbers, exponents = torch.tensor(features, dtype=torch.float32) * 2.0**-FEATURE_EXPONENT, []
    for below, above in pairwise(network.layers):
        assert above.activation is not None
        bias = 0.0 if below.linear.bias is None else parameters[below.linear.bias]
        weight = torch.tensor(parameters[below.linear.weight], dtype=torch.float32)
        turned = weight if below.linear.transposed else weight.T
        sums = torch.addmm(torch.tensor(bias, dtype=torch.float32), numbers, turned)
        numbers = above.activation.in_floats(sums)
        fixed, least = above.activation.fixed_exponent, above.dropout.raised if above.dropout else 0
        largest, reach = float(numbers.abs().max()), (TOP - 1) * 2.0**-least
        if fixed is None and not largest <= reach:  # NaN fails this too.
            found = f"numbers after {below.linear.weight} reach {largest:.3g}; 8 bits hold {reach:g}"
            if not clamp:
                raise WeightsDoNotFit(f"{found}: start from smaller weights, or give a sample of other rows")
            warnings.warn("at these weights no scale holds a hidden layer: clamped", Saturated, stacklevel=2)
            largest = reach
        chosen = min(CAP, math.floor(math.log2((TOP - 1) / max(2.0**-CAP, largest))))
        exponents.append(chosen if fixed is None else fixed)
    return tuple(exponents)
