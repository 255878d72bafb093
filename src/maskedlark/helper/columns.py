"""Columns on disk: the records of a frozen dataset, one file per array, memory-mapped. Run by a helper.

Records are in the order of their report ids, however they were sent, so that what depends on a record's place
is the same at every helper. The dataset's row states every file with its shape and digest. A file that
differs is damaged, and nothing is computed from it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import AggregateRecords, Coded, Entry, TrainingRecords, in_order
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper.errors import DamagedDataset
from maskedlark.wire.message import Settings

Array = NDArray[Any]
Order = NDArray[np.intp]
Kind = Literal["|u1", "<i4", "<i8", "<u4"]
_U1: Kind = "|u1"
_I4: Kind = "<i4"
_I8: Kind = "<i8"
_U4: Kind = "<u4"
_ENTRIES = "entries.json"
_BLOCK = 1 << 16


class Stored(Settings):
    """A written file's type, shape and digest."""

    dtype: Kind
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    digest: str

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


class Contents(Settings):
    """What freezing made: files by name, and records by tag (for aggregation, the empty tag)."""

    files: dict[str, Stored]
    records: dict[str, int]


class ColumnWriter:
    """One array, written in pieces along its records, in bounded memory."""

    def __init__(self, path: Path, dtype: Kind, *rest: int) -> None:
        self.name, self.records = path.name, 0
        self._path, self._dtype, self._rest = path, dtype, rest
        path.touch(0o600, exist_ok=False)

    def append(self, rows: Array) -> None:
        """Append records."""
        assert rows.shape[1:] == self._rest
        data = np.ascontiguousarray(rows, self._dtype)
        if data.size:
            # Opened for every piece: a document may have more columns than a process may have open files.
            with self._path.open("ab") as file:
                data.tofile(file)
        self.records += len(rows)

    def translate(self, table: Array) -> None:
        """Replace every number by its entry in the table."""
        if self.records:
            mapped = np.memmap(self._path, self._dtype, "r+")
            for start in range(0, len(mapped), _BLOCK):
                mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
            mapped.flush()

    def close(self, order: Order | None = None, turned: bool = False) -> Stored:
        """Make it durable, records in `order` if given. `turned`: one value of all records lies together."""
        shape = (self.records, *self._rest)
        if order is not None:
            rows = self._mapped()
            _reorder(self._path, [*rows.T] if turned else [rows], order)
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        return Stored(dtype=self._dtype, shape=shape[::-1] if turned else shape, digest=_digest(self._path))

    def in_order(self) -> Order:
        """The order that sorts the records by what is written here: for ids, the dataset's."""
        rows = self._mapped()
        return np.argsort(np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel())

    def _mapped(self) -> Array:
        return _map(self._path, self._dtype, (self.records, *self._rest))


class MeasuredWriter:
    """Writes the records of a dataset to aggregate."""

    def __init__(self, folder: Path, measure: Measure) -> None:
        self._ids = ColumnWriter(folder / "ids", _U1, ID_BYTES)
        self._codes = {name: ColumnWriter(folder / f"codes-{i}", _I4) for i, name in enumerate(measure.keys)}
        self._shares = ColumnWriter(folder / "shares", _I8, measure.held())
        self._entries = ColumnWriter(folder / _ENTRIES, _U1)
        self._known: dict[str, dict[Entry, int]] = {name: {} for name in measure.keys}

    def append(self, records: AggregateRecords | Mapping[str, TrainingRecords]) -> None:
        """Append records. Their codes become those of the whole dataset."""
        assert isinstance(records, AggregateRecords), "records to aggregate have no tag"
        self._ids.append(records.ids)
        self._shares.append(records.shares)
        for name, writer in self._codes.items():
            writer.append(_merged(records.keys[name], self._known[name]))

    def close(self) -> Contents:
        """Durable when this returns, except for the folder's own name."""
        order = self._ids.in_order()
        ordered = [in_order(known) for known in self._known.values()]
        for known, entries, writer in zip(self._known.values(), ordered, self._codes.values(), strict=True):
            rank = {entry: place for place, entry in enumerate(entries)}
            writer.translate(np.array([rank[entry] for entry in known], np.int32))
        self._entries.append(np.frombuffer(json.dumps(ordered).encode(), np.uint8))
        files = {writer.name: writer.close(order) for writer in (*self._codes.values(), self._ids)}
        files |= {"shares": self._shares.close(order, turned=True), _ENTRIES: self._entries.close()}
        return Contents(files=files, records={"": self._ids.records})


class TrainedWriter:
    """Writes the records of a dataset to train, for every model of its document that has any."""

    def __init__(self, folder: Path, models: Mapping[str, Model]) -> None:
        self._models = models
        self._writers = {
            tag: [ColumnWriter(folder / name, *kind) for name, kind in _trained_columns(models, tag).items()]
            for tag in models
        }

    def append(self, by_tag: AggregateRecords | Mapping[str, TrainingRecords]) -> None:
        """Append records of some models."""
        assert not isinstance(by_tag, AggregateRecords), "records to train have a tag"
        for tag, records in by_tag.items():
            shown = [] if isinstance(self._models[tag].policy, All) else records.candidates
            arrays: list[Array] = [records.ids, records.features, records.shares, *records.indices, *shown]
            for writer, array in zip(self._writers[tag], arrays, strict=True):
                writer.append(array)

    def close(self) -> Contents:
        """Durable when this returns, except for the folder's own name."""
        files: dict[str, Stored] = {}
        for ids, *others in self._writers.values():
            order = ids.in_order()
            files |= {writer.name: writer.close(order) for writer in (ids, *others)}
        return Contents(files=files, records={tag: ids.records for tag, (ids, *_) in self._writers.items()})


def read_measured(folder: Path, contents: Contents, measure: Measure) -> AggregateRecords:
    """The records of a dataset to aggregate, memory-mapped. Checks every file."""
    parsed = json.loads(_open(folder, contents, _ENTRIES).tobytes())
    keys = {
        name: Coded(_open(folder, contents, f"codes-{i}"), tuple(parsed[i]))
        for i, name in enumerate(measure.keys)
    }
    return AggregateRecords(_open(folder, contents, "ids"), keys, _open(folder, contents, "shares").T)


def read_trained(folder: Path, contents: Contents, models: Mapping[str, Model], tag: str) -> TrainingRecords:
    """The records of one model, memory-mapped. Checks every file."""
    ids, features, shares, *others = (_open(folder, contents, name) for name in _trained_columns(models, tag))
    model = models[tag]
    indices, shown = others[: len(model.indexed)], others[len(model.indexed) :]
    if isinstance(model.policy, All):
        shown = [np.array([space.values], np.int64) for space in model.labels]
    return TrainingRecords(ids, features, tuple(shown), shares, tuple(indices))


def _trained_columns(models: Mapping[str, Model], tag: str) -> dict[str, tuple[Kind, int]]:
    """The files of a model, ids first. Named by the model's index: a tag may hold any characters."""
    place, model = list(models).index(tag), models[tag]
    labels = [] if isinstance(model.policy, All) else model.labels
    kinds = {"ids": (_U1, ID_BYTES), "features": (_U1, model.features), "shares": (_I8, model.secrets())}
    kinds |= {f"indices-{i}": (_U4, column.length) for i, column in enumerate(model.indexed)}
    kinds |= {f"candidates-{i}": (_I8, model.policy.count(space)) for i, space in enumerate(labels)}
    return {f"{place}-{name}": kind for name, kind in kinds.items()}


def _merged(coded: Coded, known: dict[Entry, int]) -> NDArray[np.int32]:
    """Codes of one dictionary converted to another, which learns the entries that occur."""
    used, codes = np.unique(coded.codes, return_inverse=True)
    numbers = [known.setdefault(coded.entries[code], len(known)) for code in used.tolist()]
    return np.array(numbers, np.int32)[codes]


def _reorder(path: Path, arrays: Sequence[Array], order: Order) -> None:
    """Rewrite a file from the arrays in it, one after another, each with its records in this order."""
    ordered = path.with_name(f"{path.name}.ordered")
    ordered.touch(0o600, exist_ok=False)
    with ordered.open("r+b") as file:
        for array in arrays:
            for start in range(0, len(order), _BLOCK):
                array[order[start : start + _BLOCK]].tofile(file)
    ordered.replace(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(folder: Path, contents: Contents, name: str) -> Array:
    """One array, memory-mapped read-only, exactly as written."""
    stored, path = contents.files[name], folder / name
    try:
        whole = path.stat().st_size == stored.size and _digest(path) == stored.digest
    except OSError:
        whole = False
    if not whole:
        raise DamagedDataset(f"the file {name} of a dataset is missing or damaged: put it back from a copy")
    return _map(path, stored.dtype, stored.shape)


def _map(path: Path, dtype: Kind, shape: tuple[int, ...]) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype)  # An empty file cannot be mapped.
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)
