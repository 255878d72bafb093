"""Records by group: one number per record that says which, over the union of datasets, filters applied."""

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
"""Up to so many possible groups, each has a number; beyond, only those that there are."""

N = TypeVar("N", np.int32, np.int64)
Filter = tuple[str, Callable[[Entry], bool]]


class Keys:
    """The keys of all records that pass every filter, coded alike over all datasets."""

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
        """A column of every dataset as one, of the records that pass."""
        pairs = zip(columns, self._passing, strict=True)
        parts = [column if passing is None else column[passing] for column, passing in pairs]
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def column(self, name: str) -> Coded:
        """One key of every record that passes, its entries in order."""
        coded = [records.keys[name] for records in self._datasets]
        entries = in_order(dict.fromkeys(entry for each in coded for entry in each.entries))
        return Coded(self.selected([_translated(each, entries) for each in coded]), entries)


@dataclass(frozen=True, repr=False)
class Groups:
    """Groups of at least k records: their keys, their sizes, and which group every record is in."""

    rows: Sequence[Group]
    records: NDArray[np.int64]
    _index: NDArray[np.intp]
    _kept: NDArray[np.intp]
    _groups: int

    def totals(self, share: FieldArray) -> FieldArray:
        """The sum of a share over every group that is kept."""
        return field.total_by(share, self._index, self._groups)[self._kept]


def group(keys: Keys, by: Sequence[str], k: int) -> Groups:
    """All records by these keys. The same groups in the same order at every helper."""
    columns = [keys.column(name) for name in by]
    index, codes = _index(columns, keys.count)
    sizes = np.bincount(index, minlength=len(codes))
    # An empty group is no group, however small k is.
    kept = np.flatnonzero(sizes >= max(k, 1))
    return Groups(_rows(columns, codes[kept]), sizes[kept].astype(np.int64), index, kept, len(codes))


def _index(columns: Sequence[Coded], count: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """A number for every record, and the codes that each number stands for: (groups, keys)."""
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
    """Which records pass; None if there is no filter. Asked once per entry, not once per record."""
    passing = None
    for name, allows in filters:
        coded = records.keys[name]
        allowed = np.array([allows(entry) for entry in coded.entries], np.bool_)[coded.codes]
        passing = allowed if passing is None else passing & allowed
    return passing


def _translated(column: Coded, entries: tuple[Entry, ...]) -> NDArray[np.int32]:
    """A column's codes, for these entries instead of its own."""
    if column.entries == entries:
        return column.codes
    place = {entry: i for i, entry in enumerate(entries)}
    return np.array([place[entry] for entry in column.entries], np.int32)[column.codes]
