"""What a helper holds of a dataset: open columns that it can read, and shares that are uniform to it.

The first axis is the record, in the same order at every helper.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.field import FieldArray
from maskedlark.core.sharing import ByteRows

Entry = str | int
"""The value of an aggregation key."""


def in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Numbers before texts: the order of stored entries and of groups in answers. Fast if already sorted."""
    listed = list(entries)
    try:
        return tuple(sorted(listed))
    except TypeError:  # Both are there, and do not compare.
        pass
    numbers = sorted(entry for entry in listed if isinstance(entry, int))
    return (*numbers, *sorted(entry for entry in listed if isinstance(entry, str)))


@dataclass(frozen=True, repr=False)
class Coded:
    """A dictionary-coded column of keys: its distinct entries, and each record's index into them."""

    codes: NDArray[np.int32]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, repr=False)
class AggregateRecords:
    """Records to aggregate: every declared key, and shares of count and values: (n, 1 + values)."""

    ids: ByteRows
    keys: Mapping[str, Coded]
    shares: FieldArray

    def __len__(self) -> int:
        return len(self.shares)

    def select_rows(self, _rows: object) -> "AggregateRecords":
        """All of them: who adds up has no part of a shard."""
        return self


@dataclass(frozen=True, repr=False)
class TrainingRecords:
    """Records of one model: byte features (n, d), and masks of every candidate of every label."""

    ids: ByteRows
    features: NDArray[np.uint8]
    candidates: tuple[NDArray[np.int64], ...]
    """By label: (n, m), or (1, m) if all records show the same."""
    shares: FieldArray
    indices: tuple[NDArray[np.uint32], ...] = ()
    """By category or bag column: (n, length)."""

    def __len__(self) -> int:
        return len(self.shares)

    def select_rows(self, rows: NDArray[np.intp] | slice | None) -> "TrainingRecords":
        """Only these records, in this order, copied unless they are a slice; None for all, as they are."""
        if rows is None:
            return self
        shown = tuple(each if len(each) == 1 < len(self) else each[rows] for each in self.candidates)
        indices = tuple(each[rows] for each in self.indices)
        return TrainingRecords(self.ids[rows], self.features[rows], shown, self.shares[rows], indices)

    def zero_others(self, counted: NDArray[np.bool_]) -> "TrainingRecords":
        """The same records, of which those that are not counted add 0 to every sum."""
        return replace(self, shares=self.shares * counted[:, None])

    def masks(self, label: int) -> FieldArray:
        """The masks of one label's candidates: (n, m)."""
        before = sum(shown.shape[1] for shown in self.candidates[:label])
        return self.shares[:, before : before + self.candidates[label].shape[1]]


Records = AggregateRecords | TrainingRecords


def joined(pieces: Sequence[Records]) -> Records:
    """Consecutive records of one dataset, or of several, as one. Keys have one dictionary in all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    ids, shares = (np.concatenate([getattr(each, name) for each in pieces]) for name in ("ids", "shares"))
    measured = [each for each in pieces if isinstance(each, AggregateRecords)]
    if measured:
        keys = {
            name: Coded(np.concatenate([each.keys[name].codes for each in measured]), coded.entries)
            for name, coded in measured[0].keys.items()
        }
        return AggregateRecords(ids, keys, shares)
    trained = [each for each in pieces if isinstance(each, TrainingRecords)]
    features = np.concatenate([each.features for each in trained])
    shown = tuple(_shown(each, trained) for each in zip(*(own.candidates for own in trained), strict=True))
    indices = zip(*(each.indices for each in trained), strict=True)
    return TrainingRecords(ids, features, shown, shares, tuple(map(np.concatenate, indices)))


def _shown(candidates: Sequence[NDArray[np.int64]], pieces: Sequence[TrainingRecords]) -> NDArray[np.int64]:
    """One label's candidates: one row if all records show the same, else one row per record."""
    if all(len(each) == 1 and np.array_equal(each, candidates[0]) for each in candidates):
        return candidates[0]
    wide = zip(candidates, map(len, pieces), strict=True)
    return np.concatenate([np.broadcast_to(each, (size, each.shape[1])) for each, size in wide])
