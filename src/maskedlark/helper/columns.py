"""Columns in files: the records of a frozen dataset, one file per array of every shard. Run by a helper.

A shard has the records of a range of report ids, in the order of ids, and shards are in that order too. So
records are in the order of their ids, however they were sent and cut, and what depends on a record's place is
the same at every helper. The dataset's row states every file with its shape and digest. A file that differs
is damaged, and nothing is computed from it. It is compared whenever it is read, and never read in place.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import AggregateRecords, Coded, Entry, TrainingRecords
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles
from maskedlark.helper.errors import DamagedDataset
from maskedlark.wire.message import Settings

Array = NDArray[Any]
Kind = Literal["|u1", "<i4", "<i8", "<u4"]
ENTRIES = "entries.json"
"""The distinct entries of every key, of the whole dataset: a list per key."""
IDS = "ids"
BLOCK_BYTES = 64 << 10
"""What is read and compared at once where some rows of a file are read."""
Places = NDArray[np.intp]
"""Places of records in a shard."""


class Stored(Settings):
    """A written file's type, shape and digest."""

    dtype: Kind
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    digest: str

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def block_rows(self) -> int:
        """The rows of a block: no row is in two blocks."""
        return max(1, BLOCK_BYTES // max(1, self.row_bytes))


class ShardContents(Settings):
    """What freezing made of a shard: files by name, and records by tag (for aggregation, the empty tag)."""

    files: dict[str, Stored]
    records: dict[str, int]


class Contents(Settings):
    """What freezing made: the shards in order of ids, and files of the whole dataset."""

    shards: Annotated[tuple[ShardContents, ...], Field(min_length=1)]
    files: dict[str, Stored]

    @cached_property
    def records(self) -> dict[str, int]:
        """Records by tag."""
        tags = self.shards[0].records
        return {tag: sum(shard.records[tag] for shard in self.shards) for tag in tags}

    @property
    def all_files(self) -> dict[str, Stored]:
        """Every file of the dataset."""
        every = self.files, *(shard.files for shard in self.shards)
        return {name: stored for files in every for name, stored in files.items()}


class Column(NamedTuple):
    """One array of a shard. `turned`: one value of all records lies together in the file."""

    dtype: Kind
    rest: tuple[int, ...] = ()
    turned: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes per record."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.rest, dtype=np.int64))


Columns = dict[str, Column]
"""The columns of a measure or model by name, ids first."""


def measured_columns(measure: Measure) -> Columns:
    """What is stored of records to aggregate."""
    codes = {f"codes-{i}": Column("<i4") for i in range(len(measure.keys))}
    return {IDS: Column("|u1", (ID_BYTES,)), **codes, "shares": Column("<i8", (measure.held(),), turned=True)}


def trained_columns(model: Model) -> Columns:
    """What is stored of a model's records."""
    labels = [] if isinstance(model.policy, All) else model.labels
    columns = {IDS: Column("|u1", (ID_BYTES,)), "features": Column("|u1", (model.features,))}
    columns["shares"] = Column("<i8", (model.secrets(),))
    columns |= {f"indices-{i}": Column("<u4", (each.length,)) for i, each in enumerate(model.indexed)}
    return columns | {
        f"candidates-{i}": Column("<i8", (model.policy.count(space),)) for i, space in enumerate(labels)
    }


def tables(declared: Measure | Mapping[str, Model]) -> dict[str, Columns]:
    """All tables of a dataset's shards, by the prefix of their columns' names.

    Models by their index: a tag may hold any characters.
    """
    if isinstance(declared, Measure):
        return {"": measured_columns(declared)}
    return {f"{place}-": trained_columns(model) for place, model in enumerate(declared.values())}


def file_name(shard: int, column: str) -> str:
    """The file of one column of a shard."""
    return f"{shard}.{column}"


def write(files: DatasetFiles, name: str, rows: Array, dtype: Kind) -> Stored:
    """Write an array, durable when this returns."""
    data = np.ascontiguousarray(rows, dtype)
    files.write(name, lambda file: file.write(data.data))
    return Stored(dtype=dtype, shape=rows.shape, digest=hashlib.sha256(data.data).hexdigest())


def read(files: DatasetFiles, name: str, stored: Stored, rows: Places | None = None) -> Array:
    """An array, exactly as written, or some of its rows. Checked in memory of this process."""
    try:
        sums = _SUMS.get((files, name, stored.digest))
        if sums is not None and rows is not None and stored.size:  # No columns have no blocks.
            return _read_rows(files, name, stored, rows, sums)
        data = files.data(name)
    except OSError:
        raise _damaged(name) from None
    if len(data) != stored.size:
        raise _damaged(name)
    if sums is None:
        if hashlib.sha256(data.data).hexdigest() != stored.digest:
            raise _damaged(name)
        if isinstance(files, LocalFiles):  # The owner of another disk could make a file of the same sums.
            _SUMS[files, name, stored.digest] = _block_sums(data, stored)
    elif not np.array_equal(_block_sums(data, stored), sums):
        raise _damaged(name)
    array: Array = data.view(stored.dtype).reshape(stored.shape)
    return array if rows is None else array[rows]


_SUMS: dict[tuple[DatasetFiles, str, str], NDArray[np.uint32]] = {}
"""The CRC-32 of every block of files whose digest this process compared: it is faster than SHA-256."""


def _block_sums(data: Array, stored: Stored) -> NDArray[np.uint32]:
    starts = range(0, len(data), stored.block_rows * stored.row_bytes or 1)
    return np.array([zlib.crc32(data[start : start + starts.step].data) for start in starts], np.uint32)


def _read_rows(
    files: DatasetFiles, name: str, stored: Stored, rows: Places, sums: NDArray[np.uint32]
) -> Array:
    """Some rows. Reads and compares only the blocks that they are in."""
    width, each = stored.row_bytes, stored.block_rows
    found = np.empty((len(rows), width), np.uint8)
    order = np.argsort(rows // each, kind="stable")
    blocks, starts = np.unique((rows // each)[order], return_index=True)
    with files.open(name) as file:
        for block, own in zip(blocks.tolist(), np.split(order, starts[1:]), strict=False):
            file.seek(block * each * width)
            data = file.read(each * width)
            if zlib.crc32(data) != sums[block]:
                raise _damaged(name)
            found[own] = np.frombuffer(data, np.uint8).reshape(-1, width)[rows[own] - block * each]
    return found.view(stored.dtype).reshape(-1, *stored.shape[1:])


def _damaged(name: str) -> DamagedDataset:
    return DamagedDataset(f"the file {name} of a dataset is missing or damaged: put it back from a copy")


def read_measured(
    files: DatasetFiles,
    shard: ShardContents,
    number: int,
    entries: Stored,
    measure: Measure,
) -> AggregateRecords:
    """The records to aggregate in a shard."""
    ids, *codes, shares = _read(files, shard, number, "", measured_columns(measure))
    coded = [
        Coded(each, own)
        for each, own in zip(codes, _entries(files, entries.size, entries.digest), strict=True)
    ]
    return AggregateRecords(ids, dict(zip(measure.keys, coded, strict=True)), shares.T)


def read_trained(
    files: DatasetFiles,
    shard: ShardContents,
    number: int,
    place: int,
    model: Model,
    rows: Places | None = None,
) -> TrainingRecords:
    """The records of the model at this place of its document, in a shard, or some of them."""
    read_now = _read(files, shard, number, f"{place}-", trained_columns(model), rows)
    ids, features, shares, *others = read_now
    indices, shown = others[: len(model.indexed)], others[len(model.indexed) :]
    if isinstance(model.policy, All):
        shown = [np.array([space.values], np.int64) for space in model.labels]
    return TrainingRecords(ids, features, tuple(shown), shares, tuple(indices))


def forget() -> None:
    """Drop what is cached of any dataset."""
    _entries.cache_clear()
    _SUMS.clear()


def _read(
    files: DatasetFiles,
    shard: ShardContents,
    number: int,
    prefix: str,
    columns: Columns,
    rows: Places | None = None,
) -> list[Array]:
    names = [file_name(number, prefix + name) for name in columns]
    return [read(files, name, shard.files[name], rows) for name in names]


@lru_cache(maxsize=4)
def _entries(files: DatasetFiles, size: int, digest: str) -> list[tuple[Entry, ...]]:
    """The dictionaries of all keys."""
    data = read(files, ENTRIES, Stored(dtype="|u1", shape=(size,), digest=digest))
    return [tuple(each) for each in json.loads(data.tobytes())]
