"""Columns in files: the records of a frozen dataset, one file per array of every shard. Run by a helper.

A shard has the records of a range of report ids, in the order of ids, and shards are in that order too. So
records are in the order of their ids, however they were sent and cut, and what depends on a record's place is
the same at every helper. The dataset's row states every file with its shape and digest. A file that differs
is damaged, and nothing is computed from it.
"""

import hashlib
import json
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
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.helper.errors import DamagedDataset
from maskedlark.wire.message import Settings

Array = NDArray[Any]
Kind = Literal["|u1", "<i4", "<i8", "<u4"]
ENTRIES = "entries.json"
"""The distinct entries of every key, of the whole dataset: a list per key."""
IDS = "ids"


class Stored(Settings):
    """A written file's type, shape and digest."""

    dtype: Kind
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    digest: str

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


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


def read(files: DatasetFiles, name: str, stored: Stored, checked: bool = False) -> Array:
    """An array, exactly as written: mapped if it is on this disk. `checked`: its digest was, before."""
    try:
        data = files.data(name)
        whole = len(data) == stored.size
        whole = whole and (checked or hashlib.sha256(data.data).hexdigest() == stored.digest)
    except OSError:
        whole = False
    if not whole:
        raise DamagedDataset(f"the file {name} of a dataset is missing or damaged: put it back from a copy")
    return data.view(stored.dtype).reshape(stored.shape)


def read_measured(
    files: DatasetFiles,
    shard: ShardContents,
    number: int,
    entries: Stored,
    measure: Measure,
    checked: bool = False,
) -> AggregateRecords:
    """The records to aggregate in a shard."""
    ids, *codes, shares = _read(files, shard, number, "", measured_columns(measure), checked)
    coded = [
        Coded(each, own)
        for each, own in zip(codes, _entries(files, entries.size, entries.digest), strict=True)
    ]
    return AggregateRecords(ids, dict(zip(measure.keys, coded, strict=True)), shares.T)


def read_trained(
    files: DatasetFiles, shard: ShardContents, number: int, place: int, model: Model, checked: bool = False
) -> TrainingRecords:
    """The records of the model at this place of its document, in a shard."""
    read_now = _read(files, shard, number, f"{place}-", trained_columns(model), checked)
    ids, features, shares, *others = read_now
    indices, shown = others[: len(model.indexed)], others[len(model.indexed) :]
    if isinstance(model.policy, All):
        shown = [np.array([space.values], np.int64) for space in model.labels]
    return TrainingRecords(ids, features, tuple(shown), shares, tuple(indices))


def forget() -> None:
    """Drop what is cached of any dataset."""
    _entries.cache_clear()


def _read(
    files: DatasetFiles, shard: ShardContents, number: int, prefix: str, columns: Columns, checked: bool
) -> list[Array]:
    names = [file_name(number, prefix + name) for name in columns]
    return [read(files, name, shard.files[name], checked) for name in names]


@lru_cache(maxsize=4)
def _entries(files: DatasetFiles, size: int, digest: str) -> list[tuple[Entry, ...]]:
    """The dictionaries of all keys."""
    data = read(files, ENTRIES, Stored(dtype="|u1", shape=(size,), digest=digest))
    return [tuple(each) for each in json.loads(data.tobytes())]
