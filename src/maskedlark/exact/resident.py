"""A shard's columns on a device, from step to step: a step sends weights and row numbers. Run by helpers."""

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core.records import TrainingRecords
from maskedlark.core.sharing import ByteRows
from maskedlark.exact import device as devices
from maskedlark.exact.errors import RecordsDoNotFit
from maskedlark.exact.forward import Seed
from maskedlark.exact.gradient import Block, Records
from maskedlark.exact.losses import as_candidates
from maskedlark.exact.network import Network


@dataclass(frozen=True, repr=False)
class Columns:
    """Records on a device, checked once, for any number of steps of one network."""

    features: Tensor
    candidates: tuple[Tensor, ...]
    """By label: (n, m), or (1, m) if all records show the same; float64."""
    masks: Tensor
    ids: ByteRows
    """Not on the device: dropout hashes them."""

    @classmethod
    def of(cls, records: TrainingRecords, network: Network, device: str | torch.device) -> Self:
        """Check that they fit the network, and copy them to the device."""
        Records.of(records, Seed(b"", records.ids)).check(network)
        place = devices.ready(device)
        return cls(
            devices.tensor(records.features, place),
            tuple(as_candidates(column, place) for column in records.candidates),
            devices.tensor(records.shares, place),
            records.ids,
        )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def size(self) -> int:
        """Bytes on the device."""
        return sum(tensor.nbytes for tensor in (self.features, *self.candidates, self.masks))

    def rows(
        self, places: NDArray[np.int64], counted: NDArray[np.bool_], seed: bytes | None = None
    ) -> "Rows":
        """A batch: these rows, of which only those counted add to its sums. The rest is padding."""
        if places.shape != counted.shape or counted.dtype != np.bool_:
            raise RecordsDoNotFit("a batch has a place and a boolean for every row, also for padding")
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < len(self):
            raise RecordsDoNotFit(f"a batch's rows lie within the {len(self)} records of its columns")
        return Rows(self, places, counted, seed)


@dataclass(frozen=True, repr=False)
class Rows:
    """Rows of columns on a device, as a batch. Rows that are not counted cost the same time."""

    columns: Columns
    places: NDArray[np.int64]
    counted: NDArray[np.bool_]
    seed: bytes | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shown(self) -> int:
        """The most candidates that a label shows."""
        return max(int(column.shape[1]) for column in self.columns.candidates)

    def block(self, start: int, stop: int, device: torch.device) -> Block:
        """These rows, gathered on the device. A mask of 0 makes a row's gradient 0."""
        own, places = self.columns, self.places[start:stop]
        index = devices.tensor(places, device)
        counted = devices.tensor(self.counted[start:stop], device)
        candidates = (
            column.expand(len(places), -1) if len(column) == 1 else column[index] for column in own.candidates
        )
        seed = None if self.seed is None else Seed(self.seed, own.ids[places])
        return Block(own.features[index], tuple(candidates), own.masks[index] * counted[:, None], seed)


_Kept = OrderedDict[tuple[int, Network, str], tuple["weakref.ref[TrainingRecords]", Columns]]
_KEPT: _Kept = OrderedDict()
_LOCK = threading.Lock()


def kept(records: TrainingRecords, network: Network, device: str) -> Columns:
    """A shard's columns on a device: copied once, and kept while the shard is and memory lasts.

    All that this process keeps is at most as much as stays unused then, for computing and for the columns of
    others: several processes may share a device. What was used last stays.
    """
    name = id(records), network, device
    with _LOCK:
        for gone in [each for each, (shard, _) in _KEPT.items() if shard() is None]:
            del _KEPT[gone]
        if name in _KEPT:
            _KEPT.move_to_end(name)
            return _KEPT[name][1]
        size = records.features.nbytes + records.shares.nbytes + sum(own.nbytes for own in records.candidates)
        # Before it is copied: there may be no room for both.
        while _KEPT and sum(own.size for _, own in _KEPT.values()) > devices.unused(device) - 2 * size:
            _KEPT.popitem(last=False)
    columns = Columns.of(records, network, device)
    with _LOCK:
        _KEPT[name] = weakref.ref(records), columns
    return columns


def forget() -> None:
    """Remove all columns from devices: those of what has expired must not stay there."""
    with _LOCK:
        _KEPT.clear()
    torch.cuda.empty_cache()  # Nothing, where no GPU was used.
