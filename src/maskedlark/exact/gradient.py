"""One helper's share of the masked, clipped gradient of a batch (section 4.2.1). Run by helpers.

All shares add up, in the field, to the sum of the true labels' clipped gradients; lifted around 0 and
multiplied by 2^-exponent, it is the gradient in reals. Same inputs, same bits, on any machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import device as devices
from maskedlark.exact import digits, products
from maskedlark.exact.backward import Backward, Label
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import RecordsDoNotFit
from maskedlark.exact.forward import Forward, Seed, Trace
from maskedlark.exact.layout import StepLayout, step_layout
from maskedlark.exact.losses import as_candidates
from maskedlark.exact.network import Network
from maskedlark.exact.operations import TOP
from maskedlark.exact.products import Limbs
from maskedlark.exact.quantise import Quantised

BLOCK = 4096
"""Records per block on a CPU: enough for fast products, few enough for the caches."""
_AT_ONCE = 1 << 24
_COPIES = 8
"""Float64 numbers in memory at once for every input and output of a layer, intermediate results included."""


@dataclass(frozen=True, repr=False)
class Block:
    """Some records of a batch, on a device."""

    features: Tensor
    """(n, d), uint8."""
    candidates: tuple[Tensor, ...]
    """One (n, m) tensor per label, float64."""
    masks: Tensor
    """(n, M), int64."""
    seed: Seed | None


class Batch(Protocol):
    """Records that fit the network: arrays (`Records`), or rows of what a device holds (`resident`)."""

    def __len__(self) -> int: ...

    @property
    def shown(self) -> int:
        """The most candidates that a label shows."""

    def block(self, start: int, stop: int, device: torch.device) -> Block:
        """These records on a device."""


@dataclass(frozen=True, repr=False)
class Records:
    """A batch as one helper holds it: columns in the clear, and its own shares of the masks."""

    features: NDArray[np.uint8]
    """(n, d)."""
    candidates: Sequence[NDArray[np.int64]]
    """One (n, m) array per label."""
    masks: FieldArray
    """(n, M): the shares of all labels' candidates, concatenated."""
    seed: Seed | None = None
    """For dropout: the helpers' shared seed and the report ids."""

    @classmethod
    def of(cls, records: TrainingRecords, seed: Seed | None = None) -> Self:
        """From what a helper stores; candidates that all records share are repeated per record."""
        shown = [np.broadcast_to(each, (len(records), each.shape[1])) for each in records.candidates]
        return cls(records.features, shown, records.shares, seed)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def shown(self) -> int:
        """The most candidates that a label shows."""
        return max(int(column.shape[1]) for column in self.candidates)

    def block(self, start: int, stop: int, device: torch.device) -> Block:
        """These records on a device."""
        return Block(
            devices.tensor(self.features[start:stop], device),
            tuple(as_candidates(column[start:stop], device) for column in self.candidates),
            devices.tensor(self.masks[start:stop], device),
            self.seed.rows(start, stop) if self.seed else None,
        )

    def check(self, network: Network) -> None:
        """Refuse records whose shapes or values do not match the network."""
        check_features(network, self.features)
        if len(self.candidates) != len(network.losses):
            raise RecordsDoNotFit(f"the network has {len(network.losses)} labels, not {len(self.candidates)}")
        for loss, column in zip(network.losses, self.candidates, strict=True):
            if column.ndim != 2 or len(column) != len(self) or not column.shape[1]:
                raise RecordsDoNotFit("every record shows the same number of candidates, at least one")
            if column.dtype != np.int64:
                raise RecordsDoNotFit(f"candidates are int64, not {column.dtype}")
            loss.check(column)
        shown = sum(column.shape[1] for column in self.candidates)
        if self.masks.dtype != np.int64 or self.masks.shape != (len(self), shown):
            raise RecordsDoNotFit("a record has one mask, int64, for every candidate it shows")
        if self.masks.size and not 0 <= int(self.masks.min()) <= int(self.masks.max()) < field.P:
            raise RecordsDoNotFit("a mask's share is an element of the field")
        if network.has_dropout and (self.seed is None or len(self.seed.ids) != len(self)):
            raise RecordsDoNotFit("the network has a dropout: give the shared seed and all report ids")


def check_features(network: Network, features: NDArray[np.uint8]) -> None:
    """Refuse features that do not match the network."""
    if features.dtype != np.uint8 or features.shape != (len(features), network.features):
        raise RecordsDoNotFit(f"features are bytes, {network.features} per record")


def gradient(
    network: Network,
    weights: Quantised,
    records: Records,
    clip: Clip,
    *,
    noise_tail: int = 0,
    block: int | None = None,
    device: str | torch.device = "cpu",
) -> FieldArray:
    """One helper's share of Σ clipped gradients, flat, in the order of `Network.parameters`.

    `noise_tail` bounds what all helpers' noise adds to one number, in the gradient's integers.
    """
    step = step_layout(network, weights, clip)
    step.check_range(len(records), noise_tail)
    records.check(network)
    engine = GradientEngine(step, devices.ready(device))
    return engine.share(records, block)


def lift(network: Network, weights: Quantised, clip: Clip, total: FieldArray) -> NDArray[np.float64]:
    """The sum of all helpers' shares as a gradient in reals. Run by the ad server."""
    return field.to_signed(total).astype(np.float64) * 2.0 ** -step_layout(network, weights, clip).exponent


class GradientEngine:
    """One step's weights on a device."""

    def __init__(self, step: StepLayout, device: torch.device) -> None:
        self._layout = step
        self._device = device
        self._forward = Forward(step, device)
        self._backward = Backward(step, device)

    def share(self, records: Batch, block: int | None = None) -> FieldArray:
        """The sum over blocks. Field addition is exact, so the block size does not matter."""
        if not len(records):
            return np.zeros(self._layout.network.size, np.int64)
        rows = max(1, min(block or len(records), self._max_rows(records)))
        with devices.exact(self._device):
            answer = self._block(records.block(0, rows, self._device))
            for start in range(rows, len(records), rows):
                more = self._block(records.block(start, start + rows, self._device))
                answer = products.add(answer, more)
            return devices.array(self._in_one_exponent(answer))

    def _max_rows(self, records: Batch) -> int:
        """How many records to process at a time: on a CPU few, for its caches, else as many as fit."""
        linear = [layer.linear for layer in self._layout.network.layers]
        if self._device.type == "cpu":
            widest = max(own.outputs for own in linear)
            return min(BLOCK, _AT_ONCE // (widest * records.shown))
        numbers = sum(_COPIES * own.inputs + (_COPIES + 3 * records.shown) * own.outputs for own in linear)
        return devices.free(self._device) // (8 * numbers)

    def _in_one_exponent(self, answer: Tensor) -> Tensor:
        """Every parameter's gradient, rescaled to the common exponent."""
        for entry, own in zip(self._layout.network.parameters, self._layout.parameter_exponents, strict=True):
            if own != self._layout.exponent:
                answer[entry.place] = products.rotate(answer[entry.place], self._layout.exponent - own)
        return answer

    def _block(self, block: Block) -> Tensor:
        trace = self._forward(block.features, block.seed if self._layout.network.has_dropout else None)
        masked = self._masked(trace, block)
        most = products.max_rows(TOP)
        strips = [slice(start, start + most) for start in range(0, len(block.features), most)]
        return products.join_all([self._contract(trace, masked, rows) for rows in strips])

    def _masked(self, trace: Trace, block: Block) -> list[Limbs]:
        """Every layer's masked error, all labels together, first layer first."""
        errors, first = [], 0
        for index, column in enumerate(block.candidates):
            own = block.masks[:, first : first + column.shape[1]]
            first += column.shape[1]
            errors.append(list(self._backward.masked_errors(trace, Label(index, column, own)))[::-1])
        return errors[0] if len(errors) == 1 else self._merge(errors, len(trace.sums))

    def _merge(self, errors: list[list[Limbs]], rows: int) -> list[Limbs]:
        """Add several labels' errors in a common exponent; at the output they are concatenated."""
        network, common = self._layout.network, self._layout.masked_exponents
        merged = []
        for layer, exponent in enumerate(common):
            width = network.layers[layer].linear.outputs
            total = torch.zeros((rows, width), dtype=torch.int64, device=self._device)
            for head, columns, limbs in zip(self._layout.heads, network.columns, errors, strict=True):
                own = products.rotate(products.join(limbs[layer]), exponent - head.masked_exponents[layer])
                place = columns if layer == len(common) - 1 else slice(None)
                total[:, place] = products.add(total[:, place], own)
            merged.append(products.split(total))
        return merged

    def _contract(self, trace: Trace, masked: list[Limbs], rows: slice) -> Limbs:
        """Σ over these records of error times input, and of the error itself for a bias; flat, not folded."""
        flat = Limbs(*torch.empty((2, self._layout.network.size), dtype=torch.float64, device=self._device))
        entries = iter(self._layout.network.parameters)
        for index, layer in enumerate(self._layout.network.layers):
            entry, linear = next(entries), layer.linear
            weight = Limbs(*(limb[entry.place].view(entry.shape) for limb in flat))
            if linear.bias is None:
                bias = Limbs(*flat.low.new_empty((2, linear.outputs)))
            else:
                place = next(entries).place
                bias = Limbs(flat.low[place], flat.high[place])
            errors, signed = Limbs(*(limb[rows] for limb in masked[index])), trace.signed[index]
            if signed is None:
                products.contract(errors, trace.inputs[index][rows], weight, bias, linear.transposed)
            else:
                digits.contract(errors, signed[rows], weight, bias, linear.transposed)
        return flat
