"""Cells of feature space: each record lies in one, and labels are counted in each (`docs/EXACT.md`, 12).

A partition is made of a network's outputs (the largest of some, or buckets of one) or of a hash of features.
Helpers run this; the ad server too, for its own rows: cells are the same to the bit.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.exact import device as devices
from maskedlark.exact.errors import RecordsDoNotFit
from maskedlark.exact.forward import Forward
from maskedlark.exact.gradient import BLOCK, check_features
from maskedlark.exact.layout import forward_layout
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised

_HASH = b"maskedlark v2 cell"
_AT_ONCE = 1 << 24
"""The most numbers of a layer in memory: records, and a network's outputs, may be 2^16 wide."""
Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Largest:
    """The largest of these outputs, the first if tied."""

    first: int
    count: int

    def of(self, sums: Tensor, exponent: int) -> Cells:  # noqa: ARG002
        """From the output layer's sums (n, outputs), integers of this exponent."""
        # Numpy promises the first of equal ones, torch does not.
        cells: Cells = sums[:, self.first : self.first + self.count].cpu().numpy().argmax(axis=1)
        return cells


@dataclass(frozen=True)
class Buckets:
    """How many of these ascending edges an output reaches."""

    output: int
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.edges)) or list(self.edges) != sorted(set(self.edges)):
            raise RecordsDoNotFit("the edges of buckets are different finite numbers, ascending")

    @property
    def count(self) -> int:
        """One more than edges."""
        return len(self.edges) + 1

    def of(self, sums: Tensor, exponent: int) -> Cells:
        """As of the largest. Sums times a power of two are exact, and so is every comparison."""
        own = sums[:, self.output].double().mul(2.0**-exponent).cpu().numpy()
        return np.searchsorted(np.array(self.edges), own, side="right")


@dataclass(frozen=True)
class Hashed:
    """A hash of some feature bytes."""

    features: tuple[int, ...]
    count: int

    def __post_init__(self) -> None:
        if not self.features or list(self.features) != sorted(set(self.features)) or self.features[0] < 0:
            raise RecordsDoNotFit("the features of a hash are different places, ascending")

    def of(self, features: NDArray[np.uint8]) -> Cells:
        """The first eight bytes of SHA-256 of these bytes, modulo the count.

        One hash per row, also of equal ones: time must not tell which records a hidden part has.
        """
        chosen = list(self.features)
        blocks = (features[start : start + BLOCK, chosen] for start in range(0, len(features), BLOCK))
        digests = (hashlib.sha256(_HASH + row.tobytes()).digest()[:8] for rows in blocks for row in rows)
        return np.array([int.from_bytes(each, "big") % self.count for each in digests], np.int64)


OfOutputs = Largest | Buckets
Partition = OfOutputs | Hashed


def cells(
    network: Network | None,
    weights: Quantised | None,
    features: NDArray[np.uint8],
    partitions: Sequence[Partition],
    *,
    device: str | torch.device = "cpu",
) -> list[Cells]:
    """The cell of every record, one array per partition. Without dropout."""
    outputs = {number: each for number, each in enumerate(partitions) if isinstance(each, OfOutputs)}
    cells = {number: each.of(features) for number, each in enumerate(partitions) if isinstance(each, Hashed)}
    if outputs:
        assert network is not None, "outputs are a network's"
        assert weights is not None
        cells |= _of_outputs(network, weights, features, outputs, devices.ready(device))
    return [cells[number] for number in range(len(partitions))]


def outputs(
    network: Network,
    weights: Quantised,
    features: NDArray[np.uint8],
    *,
    device: str | torch.device = "cpu",
) -> NDArray[np.float64]:
    """The network's outputs (n, outputs) in reals, as helpers compare them with edges. Without dropout."""
    blocks = [np.empty((0, network.layers[-1].linear.outputs))]

    def keep(sums: Tensor, exponent: int) -> None:
        blocks.append(sums.double().mul(2.0**-exponent).cpu().numpy())

    _each_block(network, weights, features, devices.ready(device), keep)
    return np.concatenate(blocks)


def _of_outputs(
    network: Network,
    weights: Quantised,
    features: NDArray[np.uint8],
    partitions: dict[int, OfOutputs],
    place: torch.device,
) -> dict[int, Cells]:
    blocks: dict[int, list[Cells]] = {number: [np.empty(0, np.int64)] for number in partitions}

    def keep(sums: Tensor, exponent: int) -> None:
        for number, partition in partitions.items():
            blocks[number].append(partition.of(sums, exponent))

    _each_block(network, weights, features, place, keep)
    return {number: np.concatenate(own) for number, own in blocks.items()}


def _each_block(
    network: Network,
    weights: Quantised,
    features: NDArray[np.uint8],
    place: torch.device,
    keep: Callable[[Tensor, int], None],
) -> None:
    """Call `keep` with the output layer's sums of every block, integers of an exponent."""
    check_features(network, features)
    layout = forward_layout(network, weights)
    forward, exponent = Forward(layout, place), layout.layers[-1].sum_exponent
    widest = max(max(layer.linear.inputs, layer.linear.outputs) for layer in network.layers)
    block = max(1, min(BLOCK, _AT_ONCE // widest))
    with devices.exact(place):
        for start in range(0, len(features), block):
            keep(forward.sums(devices.tensor(features[start : start + block], place)), exponent)


def counts(of: Cells, masks: FieldArray, columns: Cells, shape: tuple[int, int]) -> FieldArray:
    """A share of how many records are in each cell and column: masks (n, m), columns (n, m) or (1, m)."""
    total = np.zeros(shape[0] * shape[1], np.int64)
    step = max(1, _AT_ONCE // masks.shape[1])
    for some in (slice(start, start + step) for start in range(0, len(of), step)):
        group = of[some, None] * shape[1] + (columns if len(columns) == 1 else columns[some])
        total = field.add(total, field.total_by(masks[some].ravel(), group.ravel(), len(total)))
    return total.reshape(shape)
