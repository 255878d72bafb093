"""The rows of a table as codes into dictionaries: a million groups are no million objects. Run by helpers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.records import Entry, in_order

Group = tuple[Entry, ...]
Codes = NDArray[np.int32]
Places = NDArray[np.intp]

DENSE = 1 << 21
"""Up to this many possible groups, each may get a place; beyond, only those that occur."""
_FEW = 1 << 12
_PER_ROW = 4
"""Possible groups, for every row that there is, that get a place each."""
_SEPARATOR = "\0"


def is_dense(groups: int, rows: int) -> bool:
    """Whether all possible groups get a place each: it is faster, unless most of them are empty."""
    return groups <= min(DENSE, max(_FEW, _PER_ROW * rows))


@dataclass(frozen=True, eq=False, repr=False)
class Groups(Sequence[Group]):
    """Different groups, by the places of their entries in each key's dictionary."""

    entries: tuple[Sequence[Entry], ...]
    """By key: its distinct entries."""
    codes: Codes | None = None
    """(keys, rows). None: every combination of entries, the last key's changing fastest."""

    @classmethod
    def of(cls, rows: Sequence[Group]) -> "Groups":
        """The rows that any sequence lists."""
        if isinstance(rows, Groups):
            return rows
        keys = [dict.fromkeys(column) for column in zip(*rows, strict=True)]
        places = [{entry: place for place, entry in enumerate(own)} for own in keys]
        listed = [[own[entry] for own, entry in zip(places, row, strict=True)] for row in rows]
        return cls(tuple(map(tuple, keys)), np.array(listed, np.int32).reshape(len(rows), len(keys)).T)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many entries each key has."""
        return tuple(map(len, self.entries))

    def select_rows(self, rows: Places) -> "Groups":
        """Only these rows."""
        if self.codes is not None:
            return Groups(self.entries, self.codes[:, rows])
        codes = np.empty((len(self.entries), len(rows)), np.int32)
        for key, size in [*enumerate(self.sizes)][:0:-1]:
            rows, codes[key] = np.divmod(rows, size)
        codes[:1] = rows
        return Groups(self.entries, codes)

    def coded(self) -> Codes:
        """The codes of every row, also where all combinations are there."""
        return self.codes if self.codes is not None else self.select_rows(np.arange(len(self))).coded()

    def order(self) -> Places | None:
        """The rows in the order of their keys; None if they are in it."""
        ordered = tuple(map(in_order, self.entries))
        if self.codes is None and all(
            tuple(own) == each for own, each in zip(self.entries, ordered, strict=True)
        ):
            return None
        return np.lexsort(_translated(self, ordered)[::-1]) if self.entries else None

    def __len__(self) -> int:
        return math.prod(self.sizes) if self.codes is None else int(self.codes.shape[1])

    @overload
    def __getitem__(self, row: int) -> Group: ...
    @overload
    def __getitem__(self, row: slice) -> list[Group]: ...
    def __getitem__(self, row: int | slice) -> Group | list[Group]:
        return self._listed[row]

    @cached_property
    def _listed(self) -> list[Group]:
        return list(iter(self))

    def __iter__(self) -> Iterator[Group]:
        if not self.entries:
            return iter([()] * len(self))
        if self.codes is None and len(self.entries) == 1:
            return zip(*self.entries, strict=True)
        columns = zip(self.entries, self.coded(), strict=True)
        return zip(*(map(entries.__getitem__, codes.tolist()) for entries, codes in columns), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (tuple(map(_packed, self.entries)), self.codes)


def united(several: Sequence[Groups]) -> tuple[Groups, list[Places | None]]:
    """All groups, whatever dictionaries they have, and the places of each one's rows among them.

    None: its rows are all of them, in the same order. Where all possible groups have a place, some of them
    may be nobody's.
    """
    entries = tuple(_union(each) for each in zip(*(groups.entries for groups in several), strict=True))
    sizes = tuple(map(len, entries))
    if is_dense(math.prod(sizes), sum(map(len, several))):
        return Groups(entries), [_numbers(each, entries) for each in several]
    codes = np.concatenate([_translated(each, entries) for each in several], axis=1)
    index, codes = distinct(codes, sizes)
    ends = np.cumsum([0, *map(len, several)])
    return Groups(entries, codes), [index[start:end] for start, end in pairwise(ends.tolist())]


def numbers(codes: Sequence[Codes], sizes: Sequence[int], rows: int) -> Places:
    """The place of every row among all combinations of entries."""
    if not codes:
        return np.zeros(rows, np.intp)
    index = codes[0].astype(np.intp)
    for column, size in zip(codes[1:], sizes[1:], strict=True):
        index *= size
        index += column
    return index


def distinct(codes: Codes, sizes: Sequence[int]) -> tuple[Places, Codes]:
    """Rows that may occur repeatedly: the place of each among the different ones, and these, in order."""
    index, kept = np.zeros(codes.shape[1], np.intp), np.zeros((0, min(1, codes.shape[1])), np.int32)
    for column, size in zip(codes, sizes, strict=True):
        # Key by key: all combinations of many keys have no number of 64 bits.
        occurring, index = np.unique(index * size + column, return_inverse=True)
        kept = np.vstack([kept[:, occurring // size], (occurring % size).astype(np.int32)])
    return index, kept


def _union(dictionaries: Sequence[Sequence[Entry]]) -> Sequence[Entry]:
    first = dictionaries[0]
    if all(each is first or each == first for each in dictionaries[1:]):
        return first
    return in_order(dict.fromkeys(chain.from_iterable(dictionaries)))


def _numbers(groups: Groups, entries: tuple[Sequence[Entry], ...]) -> Places | None:
    same = all(own is each or own == each for own, each in zip(groups.entries, entries, strict=True))
    if same and groups.codes is None:
        return None
    return numbers([*_translated(groups, entries)], [*map(len, entries)], len(groups))


def _translated(groups: Groups, entries: tuple[Sequence[Entry], ...]) -> Codes:
    """The codes of these groups in other dictionaries, which have all of their entries."""
    codes = groups.coded()
    if all(own is each or own == each for own, each in zip(groups.entries, entries, strict=True)):
        return codes
    translated = np.empty_like(codes)
    for key, (own, each) in enumerate(zip(groups.entries, entries, strict=True)):
        place = {entry: number for number, entry in enumerate(each)}
        translated[key] = np.array([place[entry] for entry in own], np.int32)[codes[key]]
    return translated


def _packed(entries: Sequence[Entry]) -> Sequence[Entry] | str:
    """Texts as one, which is fast to pickle; as they are where they could not be told apart in it."""
    try:
        joined = _SEPARATOR.join(entries)  # type: ignore[arg-type]
    except TypeError:  # There are numbers among them.
        return entries
    return joined if joined.count(_SEPARATOR) == len(entries) - 1 else entries


def _unpickled(packed: tuple[Sequence[Entry] | str, ...], codes: Codes | None) -> Groups:
    return Groups(tuple(_split(each) if isinstance(each, str) else each for each in packed), codes)


@lru_cache(maxsize=2)
def _split(joined: str) -> tuple[Entry, ...]:
    """Cached: all shards of a dataset send the same, and a million texts take longer than their sums."""
    return tuple(joined.split(_SEPARATOR))
