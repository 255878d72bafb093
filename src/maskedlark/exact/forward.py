"""The forward pass in integers, on one block of records. Run by helpers, to train and to evaluate."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.exact import device as devices
from maskedlark.exact import digits
from maskedlark.exact.errors import RecordsDoNotFit, TooWide
from maskedlark.exact.layout import ForwardLayout, LayerLayout
from maskedlark.exact.network import Layer
from maskedlark.exact.operations import Activation

_DROPOUT = b"maskedlark v2 dropout"
_SINGLE = 1 << 24
"""Float32 holds every integer up to 2^24."""
_DOUBLE = 1 << 53


@dataclass(frozen=True, repr=False)
class Seed:
    """The helpers' shared dropout seed, at least 16 bytes, and the record ids (n, 16)."""

    seed: bytes
    ids: NDArray[np.uint8]

    def rows(self, start: int, stop: int) -> "Seed":
        """The same seed for a block of records."""
        return Seed(self.seed, self.ids[start:stop])

    def kept(self, layer: int, width: int, k: int) -> NDArray[np.bool_]:
        """Which inputs dropout keeps: j if byte j of the record's stream is at least k."""
        head = _DROPOUT + len(self.seed).to_bytes(2, "big") + self.seed + layer.to_bytes(2, "big")
        streams = [hashlib.shake_128(head + row.tobytes()).digest(width) for row in self.ids]
        return np.frombuffer(b"".join(streams), np.uint8).reshape(len(self.ids), width) >= k


@dataclass(frozen=True)
class Trace:
    """What the forward pass keeps for the backward pass."""

    inputs: tuple[Tensor, ...]
    """The 8-bit input of every layer, float32."""
    slopes: tuple[Tensor, ...]
    """The slope of the operations before each layer but the first, float32."""
    signed: tuple[Tensor | None, ...]
    """The same inputs as signed bytes, for layers that use byte products backwards too."""
    sums: Tensor
    """The output layer's sums, float64."""


class Forward:
    """One step's weights on a device, ready for any number of blocks."""

    def __init__(self, layout: ForwardLayout, device: torch.device) -> None:
        self._layout = layout
        self._device = device
        self._linear = [
            _Linear(layer, *self._wanted(index + 1, layer.sum_exponent), self._in_bytes(index), device)
            for index, layer in enumerate(layout.layers)
        ]

    def __call__(self, features: Tensor, seed: Seed | None) -> Trace:
        """Features (n, d), uint8, to the output's sums. Without a seed (evaluation) nothing is dropped."""
        inputs, slopes, signed = self._inputs(features, seed)
        sums = self._linear[-1](inputs[-1], signed[-1]).double()
        if not digits.can_contract(self._device):
            signed = [None] * len(signed)
        return Trace(tuple(inputs), tuple(slopes), tuple(signed), sums)

    def sums(self, features: Tensor) -> Tensor:
        """The output's sums alone, in the narrowest float that holds them. Nothing is dropped."""
        inputs, _, signed = self._inputs(features, None)
        return self._linear[-1](inputs[-1], signed[-1])

    def last_input(self, features: Tensor) -> Tensor:
        """The input of the last layer, float32: (n, width). Nothing is dropped."""
        return self._inputs(features, None)[0][-1]

    def _inputs(
        self, features: Tensor, seed: Seed | None
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
        """Every layer's input, the slopes before each but the first, and inputs as signed bytes."""
        numbers = features.float()
        inputs, slopes = [], []
        signed: list[Tensor | None] = []
        for index, layer in enumerate(self._layout.network.layers):
            slope: Tensor | None = None
            if layer.activation is not None:
                sums = self._linear[index - 1](numbers, signed[-1])
                numbers, slope = layer.activation.apply(sums, self._exponent(index))
            if layer.dropout is not None:
                numbers, slope = self._drop(layer, index, numbers, slope, seed)
            inputs.append(numbers)
            if slope is not None and index:
                slopes.append(slope)
            raw = features if not index and layer.dropout is None else numbers
            signed.append(digits.with_ones(raw) if self._in_bytes(index) else None)
        return inputs, slopes, signed

    def _in_bytes(self, index: int) -> bool:
        """Whether a layer's inputs are 0 … 255 and its products are faster in bytes."""
        layer = self._layout.network.layers[index]
        negative = layer.activation is not None and layer.activation.signed
        return not negative and digits.is_faster(layer.linear.inputs, layer.linear.outputs, self._device)

    def _exponent(self, index: int) -> int:
        """The exponent of an activation's output, before dropout lowers it."""
        dropout = self._layout.network.layers[index].dropout
        return self._layout.layers[index].input_exponent + (dropout.raised if dropout else 0)

    def _wanted(self, index: int, sum_exponent: int) -> tuple[int, bool]:
        """The unit that a layer's activation expects its sums in, and whether 1/2 is added."""
        if index == len(self._layout.layers):
            return sum_exponent, False
        activation = self._layout.network.layers[index].activation
        assert activation is not None
        _check_room(activation, self._layout.layers[index - 1])
        return activation.unit(self._exponent(index)), activation.rounded

    def _drop(
        self, layer: Layer, index: int, numbers: Tensor, slope: Tensor | None, seed: Seed | None
    ) -> tuple[Tensor, Tensor]:
        assert layer.dropout is not None
        if seed is None:
            # Evaluation: nothing is dropped; only rounded to the exponent that follows.
            return (numbers * 2.0**-layer.dropout.raised).add_(0.5).floor_(), torch.ones_like(numbers)
        if len(seed.ids) != len(numbers):
            raise RecordsDoNotFit("dropout needs the report id of every record")
        kept = devices.tensor(seed.kept(index, numbers.shape[1], layer.dropout.k), self._device).float()
        numbers, of_dropout = layer.dropout.apply(numbers, kept)
        return numbers, of_dropout if slope is None else of_dropout.mul_(slope)


class _Linear:
    """z = W a + b, in the unit that the next operation expects and the narrowest exact type."""

    def __init__(
        self, layer: LayerLayout, unit: int, half: bool, in_bytes: bool, device: torch.device
    ) -> None:
        shift = unit - layer.sum_exponent
        self._dtype = _exact_type(layer, shift, half)
        self._factor = 2.0**shift
        self._in_bytes = in_bytes and layer.weight_top <= 127
        weight, bias = devices.tensor(layer.weight, device), devices.tensor(layer.bias, device)
        if self._in_bytes:
            self._weight = digits.weight_with_zeros(weight)
            bias = bias + digits.OFFSET * weight.sum(dim=1, dtype=torch.int64)
        else:
            self._weight = weight.T.to(self._dtype).mul_(self._factor)
        self._bias = bias.double().mul_(self._factor).add_(0.5 if half else 0.0).to(self._dtype)

    def __call__(self, numbers: Tensor, signed: Tensor | None) -> Tensor:
        """Every partial sum is exact, so the result does not depend on the kernel."""
        if self._in_bytes and signed is not None:
            sums = digits.multiply(signed, self._weight)[:, : len(self._bias)]
            return sums.to(self._dtype).mul_(self._factor).add_(self._bias)
        return torch.addmm(self._bias, numbers.to(self._dtype), self._weight)


def _check_room(activation: Activation, below: LayerLayout) -> None:
    """Refuse sums that an activation would extend beyond float64's exact range."""
    bits = below.sum_top.bit_length() + activation.extra_bits
    if below.sum_top << activation.extra_bits > _DOUBLE:
        raise TooWide(f"{below.name}: {activation} after it would need {bits} bits; use 8-bit weights")


def _exact_type(layer: LayerLayout, shift: int, half: bool) -> torch.dtype:
    """The narrowest float that holds every sum: multiples of 2^shift, or of 1/2 where a half is added."""
    top = layer.sum_top
    if half:
        top = top + (1 << (-shift - 1)) if shift < 0 else (top << (shift + 1)) + 1
    if top <= _SINGLE:
        return torch.float32
    if top <= _DOUBLE:
        return torch.float64
    raise TooWide(f"{layer.name}: its sums need {top.bit_length()} bits; make the layer narrower")
