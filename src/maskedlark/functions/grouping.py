"""Groups records by keys, over the union of datasets, after filtering. Run by helpers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.records import AggregateRecords, Coded, Entry, in_order
from maskedlark.functions.function import Group

DENSE = 1 << 20
"""Up to this many possible groups, each gets a number; beyond, only those that occur."""

N = TypeVar("N", np.int32, np.int64)
Filter = tuple[str, Callable[[Entry], bool]]


class Keys:
    """The keys of all records that pass every filter, with the same codes in all datasets."""

    def __init__(self, datasets: Sequence[AggregateRecords], filters: Sequence[Filter]) -> None:
        self._datasets = datasets
        self._passing = [_passing(records, filters) for records in datasets]

    @cached_property
    def count(self) -> int:
        """How many records pass."""
        return sum(
            len(records) if passing is None else int(passing.sum())
            for records, passing in zip(self._datasets, self._passing, strict=True)
        )

    def selected(self, columns: Sequence[NDArray[N]]) -> NDArray[N]:
        """One column over all datasets, for the records that pass."""
        pairs = zip(columns, self._passing, strict=True)
        parts = [column if passing is None else column[passing] for column, passing in pairs]
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def column(self, name: str) -> Coded:
        """One key of every record that passes, its entries sorted."""
        coded = [records.keys[name] for records in self._datasets]
        entries = in_order(dict.fromkeys(entry for each in coded for entry in each.entries))
        return Coded(self.selected([_translated(each, entries) for each in coded]), entries)


@dataclass(frozen=True, repr=False)
class Groups:
    """Groups of at least k records: their keys, their sizes, and the group of every record."""

    rows: Sequence[Group]
    records: NDArray[np.int64]
    _index: NDArray[np.intp]
    _kept: NDArray[np.intp]
    _groups: int

    def totals(self, share: FieldArray) -> FieldArray:
        """The sum of a share over each group."""
        return field.total_by(share, self._index, self._groups)[self._kept]


def group(keys: Keys, by: Sequence[str], k: int) -> Groups:
    """Group all records by these keys: the same groups in the same order at every helper."""
    columns = [keys.column(name) for name in by]
    index, codes = _index(columns, keys.count)
    sizes = np.bincount(index, minlength=len(codes))
    # Empty groups are dropped even if k is 0.
    kept = np.flatnonzero(sizes >= max(k, 1))
    return Groups(_rows(columns, codes[kept]), sizes[kept].astype(np.int64), index, kept, len(codes))


def _index(columns: Sequence[Coded], count: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """A group number per record, and the key codes of each number: (groups, keys)."""
    index = np.zeros(count, np.intp)
    codes = np.zeros((1, 0), np.int64)
    for column in columns:
        size = max(1, len(column.entries))
        index = index * size + column.codes if codes.shape[1] else column.codes.astype(np.intp)
        if len(codes) * size <= DENSE:
            numbers = np.arange(len(codes) * size)
        else:
            numbers, index = np.unique(index, return_inverse=True)
        codes = np.hstack([codes[numbers // size], (numbers % size)[:, None]])
    return index, codes


def _rows(columns: Sequence[Coded], codes: NDArray[np.int64]) -> list[Group]:
    if not columns:
        return [()] * len(codes)
    named = [[column.entries[code] for code in codes[:, i].tolist()] for i, column in enumerate(columns)]
    return list(zip(*named, strict=True))


def _passing(records: AggregateRecords, filters: Sequence[Filter]) -> NDArray[np.bool_] | None:
    """Which records pass; None without filters. Evaluated once per entry, not per record."""
    passing = None
    for name, allows in filters:
        coded = records.keys[name]
        allowed = np.array([allows(entry) for entry in coded.entries], np.bool_)[coded.codes]
        passing = allowed if passing is None else passing & allowed
    return passing


def _translated(column: Coded, entries: tuple[Entry, ...]) -> NDArray[np.int32]:
    """A column's codes, translated to these entries."""
    if column.entries == entries:
        return column.codes
    place = {entry: i for i, entry in enumerate(entries)}
    return np.array([place[entry] for entry in column.entries], np.int32)[column.codes]
