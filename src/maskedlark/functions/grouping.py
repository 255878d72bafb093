"""Sums of records by their keys, after filtering, a block at a time. Run by helpers."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.field import FieldArray, Totals
from maskedlark.core.records import AggregateRecords, Entry
from maskedlark.functions import groups
from maskedlark.functions.function import Table, added
from maskedlark.functions.groups import Codes, Groups, Places

BLOCK = 1 << 20
"""Records at a time: each takes a few words of memory."""
_SPARSE = 4
"""If fewer than one of so many possible groups occur, only those are kept."""

Filter = tuple[str, Callable[[Entry], bool]]


class Sums:
    """The sums of some columns of shares over the records that pass every filter."""

    def __init__(
        self, records: AggregateRecords, places: Sequence[int], filters: Sequence[Filter] = ()
    ) -> None:
        self._records, self._places = records, places
        # Evaluated once per entry, not per record.
        self._allowed: dict[str, NDArray[np.bool_]] = {}
        for name, allows in filters:
            own = np.array([allows(entry) for entry in records.keys[name].entries], np.bool_)
            self._allowed[name] = own & self._allowed.get(name, True)

    def by(self, keys: Sequence[str]) -> Table:
        """The groups of these keys, with their sizes and sums. Some of them may be empty."""
        coded = [self._records.keys[name] for name in keys]
        entries = tuple(each.entries for each in coded)
        codes, sizes = [each.codes for each in coded], [*map(len, entries)]
        if groups.is_dense(math.prod(sizes), len(self._records)):
            return _occurring(self._dense(Groups(entries), codes, sizes))
        return added([*self._sorted(entries, codes, sizes)])

    def _dense(self, rows: Groups, codes: Sequence[Codes], sizes: Sequence[int]) -> Table:
        records = np.zeros(len(rows), np.int64)
        totals = [Totals(len(rows)) for _ in self._places]
        for own, shares in self._blocks(codes):
            index = groups.numbers(own, sizes, len(shares[0]))
            records += np.bincount(index, minlength=len(records))
            for total, share in zip(totals, shares, strict=True):
                total.add(share, index)
        return Table(rows, records, tuple(total.sums()[:, None] for total in totals))

    def _sorted(
        self, entries: tuple[Sequence[Entry], ...], codes: Sequence[Codes], sizes: Sequence[int]
    ) -> Iterator[Table]:
        """The groups that occur in each block."""
        for own, shares in self._blocks(codes):
            index, kept = groups.distinct(np.stack(own), sizes)
            rows = Groups(entries, kept)
            records = np.bincount(index, minlength=len(rows))
            totals = [Totals(len(rows)) for _ in shares]
            for total, share in zip(totals, shares, strict=True):
                total.add(share, index)
            yield Table(rows, records, tuple(total.sums()[:, None] for total in totals))

    def _blocks(self, codes: Sequence[Codes]) -> Iterator[tuple[list[Codes], list[FieldArray]]]:
        """The codes and shares of every block's records that pass. At least one block, maybe of none."""
        for start in range(0, max(1, len(self._records)), BLOCK):
            block = slice(start, start + BLOCK)
            passing = self._passing(block)
            columns = [self._records.shares[block, place] for place in self._places]
            if passing is None:
                yield [each[block] for each in codes], columns
            else:
                yield [each[block][passing] for each in codes], [each[passing] for each in columns]

    def _passing(self, block: slice) -> Places | None:
        passing: NDArray[np.bool_] | None = None
        for name, allowed in self._allowed.items():
            own = allowed[self._records.keys[name].codes[block]]
            passing = own if passing is None else passing & own
        return None if passing is None else np.flatnonzero(passing)


def _occurring(table: Table) -> Table:
    """Without empty groups, if most are: what a small shard adds is small, whatever the dictionary."""
    if _SPARSE * np.count_nonzero(table.records) >= len(table.records):
        return table
    return table.select_rows(np.flatnonzero(table.records))
