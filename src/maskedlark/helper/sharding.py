"""Cutting a dataset into shards by ranges of report ids, each sorted by itself. Run by a helper.

The memory that this takes does not grow with the dataset, but for the distinct entries of its keys. Records
are first dealt out to ranges, in pieces that are written whenever enough are held; then every range is read,
sorted and written by itself, wherever there is a worker. Browsers choose ids, and the ad server their order,
so the ranges are quantiles of a random sample of the ids, not parts of equal width.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import AggregateRecords, Coded, Entry, TrainingRecords, in_order
from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.helper import columns
from maskedlark.helper.chunk_file import KeptRecords
from maskedlark.helper.columns import ENTRIES, IDS, Contents, ShardContents, Stored
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.helper.id_runs import Names, names
from maskedlark.randomness import Randomness
from maskedlark.wire.report import HEAD_BYTES

HELD_BYTES = 128 << 20
"""How much is held before it is written in pieces."""
SAMPLED = 1 << 16
"""Ids by which ranges are chosen, about."""
HEADS = "heads"
Declared = Measure | Mapping[str, Model]
Array = NDArray[Any]


def row_bytes(declared: Declared) -> int:
    """The most bytes that a record takes in its columns."""
    tables = columns.tables(declared).values()
    return max((sum(column.row_bytes for column in each.values()) for each in tables), default=1)


def ranges(ids: Iterable[ByteRows], records: int, shards: int, rng: Randomness) -> Names:
    """The first id of every range but the first, so that ranges have about as many records each.

    A range has twice its share with a probability below 2^-28, in whatever order ids come: then at most 64 of
    its records would be sampled, where 128 are expected. Freezing that is done again may cut elsewhere.
    """
    if shards == 1:
        return names(np.empty((0, ID_BYTES), np.uint8))
    every = max(1, records // max(SAMPLED, 64 * shards))
    # One of every so many, at a place that nobody else knows.
    places = np.arange(0, records - every + 1, every)
    places += rng.below(every, len(places))
    sampled, seen = [], 0
    for some in ids:
        low, high = np.searchsorted(places, (seen, seen + len(some)))
        sampled.append(some[places[low:high] - seen])
        seen += len(some)
    sample = np.sort(names(np.concatenate(sampled)))
    return np.unique(sample[np.arange(1, shards) * len(sample) // shards])


@dataclass
class RangeWriter:
    """Deals records out to ranges."""

    files: DatasetFiles
    declared: Declared
    starts: Names
    entries: list[dict[Entry, int]] = field(default_factory=list)
    """By key: every entry so far, with its number."""
    pieces: list[list[str]] = field(default_factory=list)
    """By range: what was written."""
    _held: list[list[dict[str, Array]]] = field(default_factory=list)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        count = len(self.starts) + 1
        self.pieces, self._held = [[] for _ in range(count)], [[] for _ in range(count)]
        if isinstance(self.declared, Measure):
            self.entries = [{} for _ in self.declared.keys]

    def append(self, kept: KeptRecords) -> None:
        """Add records."""
        self._deal({HEADS: kept.heads}, kept.heads)
        for table, ids in self._tables(kept.records):
            self._deal(table, ids)
        if self._held_bytes >= HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held, a piece per range that has any."""
        for number, held in enumerate(self._held):
            if held:
                piece = f"piece-{number}-{len(self.pieces[number])}"
                self.files.write(piece, partial(_save, _joined(held)))
                self.pieces[number].append(piece)
                held.clear()
        self._held_bytes = 0

    def _tables(
        self, records: AggregateRecords | Mapping[str, TrainingRecords]
    ) -> Iterable[tuple[dict[str, Array], ByteRows]]:
        """The columns of every table, and its ids."""
        if isinstance(records, AggregateRecords):
            merged = zip(records.keys.values(), self.entries, strict=True)
            codes = {f"codes-{i}": _merged(*each) for i, each in enumerate(merged)}
            yield {IDS: records.ids, **codes, "shares": records.shares}, records.ids
            return
        assert not isinstance(self.declared, Measure), "records to train have a tag"
        for place, (tag, model) in enumerate(self.declared.items()):
            if (own := records.get(tag)) is not None:
                shown = () if isinstance(model.policy, All) else own.candidates
                arrays: list[Array] = [own.ids, own.features, own.shares, *own.indices, *shown]
                named = zip(columns.trained_columns(model), arrays, strict=True)
                yield {f"{place}-{name}": array for name, array in named}, own.ids

    def _deal(self, table: dict[str, Array], ids: ByteRows) -> None:
        self._held_bytes += sum(each.nbytes for each in table.values())
        if not len(self.starts):
            self._held[0].append(table)
            return
        of = np.searchsorted(self.starts, names(ids[:, :ID_BYTES]), side="right")
        order, ends = np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=len(self._held)))
        for number, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
            if start < end:
                rows = order[start:end]
                self._held[number].append({name: array[rows] for name, array in table.items()})


@dataclass(frozen=True, repr=False)
class Sorting:
    """What sorting any range of a dataset needs."""

    files: DatasetFiles
    declared: Declared
    ranks: tuple[NDArray[np.int32], ...]
    """By key: the place in order of every entry, by its number."""


@dataclass(frozen=True)
class Range:
    """A range's number, and the pieces that its records are in."""

    number: int
    pieces: tuple[str, ...]


def sort_range(sorting: Sorting, own: Range) -> ShardContents:
    """Write a range's columns in the order of ids, and its heads. Run by a worker."""
    pieces = [_load(sorting.files, piece) for piece in own.pieces]
    joined = _joined(pieces)
    heads = joined.get(HEADS, np.empty((0, HEAD_BYTES), np.uint8))
    by_id = heads[np.argsort(names(heads[:, :ID_BYTES]))]
    columns.write(sorting.files, columns.file_name(own.number, HEADS), by_id, "|u1")
    files: dict[str, Stored] = {}
    records: dict[str, int] = {}
    tags = [""] if isinstance(sorting.declared, Measure) else list(sorting.declared)
    for tag, (prefix, table) in zip(tags, columns.tables(sorting.declared).items(), strict=True):
        ids = joined.get(prefix + IDS, np.empty((0, ID_BYTES), np.uint8))
        order, records[tag] = in_order_of(ids), len(ids)
        for name, column in table.items():
            rows = joined.pop(prefix + name, np.empty((0, *column.rest), column.dtype))[order]
            if name.startswith("codes-"):
                rows = sorting.ranks[int(name.removeprefix("codes-"))][rows]
            file = columns.file_name(own.number, prefix + name)
            files[file] = columns.write(sorting.files, file, rows.T if column.turned else rows, column.dtype)
    return ShardContents(files=files, records=records)


def in_order_of(ids: ByteRows) -> NDArray[np.intp]:
    """The order of a dataset's records: by id, the same at every helper."""
    return np.argsort(names(ids))


def write_entries(files: DatasetFiles, writer: RangeWriter) -> tuple[dict[str, Stored], tuple[Array, ...]]:
    """Write the entries of every key, in order; returns the file, and every entry's place by its number."""
    if not isinstance(writer.declared, Measure):
        return {}, ()
    ordered = [in_order(known) for known in writer.entries]
    ranks = []
    for known, entries in zip(writer.entries, ordered, strict=True):
        place = {entry: rank for rank, entry in enumerate(entries)}
        ranks.append(np.array([place[entry] for entry in known], np.int32))
    text = np.frombuffer(json.dumps(ordered).encode(), np.uint8)
    return {ENTRIES: columns.write(files, ENTRIES, text, "|u1")}, tuple(ranks)


def sorted_heads(files: DatasetFiles, number: int) -> ByteRows:
    """The heads of a range's reports, in order."""
    return files.data(columns.file_name(number, HEADS)).reshape(-1, HEAD_BYTES)


def remove_all_but(files: DatasetFiles, contents: Contents) -> None:
    """Remove what only freezing needed, and what workers left that ended while they wrote."""
    for name in {*files.names()} - {*contents.all_files}:
        files.remove(name)


def _load(files: DatasetFiles, piece: str) -> dict[str, Array]:
    with files.open(piece) as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _save(arrays: Mapping[str, Array], file: BinaryIO) -> None:
    np.savez(file, allow_pickle=False, **arrays)


def _joined(pieces: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Every column that any of the pieces has."""
    names_ = dict.fromkeys(name for each in pieces for name in each)
    return {name: np.concatenate([each[name] for each in pieces if name in each]) for name in names_}


def _merged(coded: Coded, known: dict[Entry, int]) -> NDArray[np.int32]:
    """Codes of one dictionary converted to another, which learns the entries that occur."""
    used, codes = np.unique(coded.codes, return_inverse=True)
    numbers = [known.setdefault(coded.entries[code], len(known)) for code in used.tolist()]
    return np.array(numbers, np.int32)[codes]
