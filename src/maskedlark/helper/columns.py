"""Columns on disk: the records of a frozen dataset, one file per array, mapped into memory. Run by a helper.

Records lie in the order of their report ids, however they were sent: what depends on a record's place is then
the same at every helper.

What a folder must hold is in the dataset's row: every file with its shape and its digest. A file that is
not exactly that is damaged, and nothing is computed from it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from maskedlark.core.candidates import All
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import Coded, Entry, Measured, Trained, in_order
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper.errors import DamagedDataset

Array = NDArray[Any]
Order = NDArray[np.intp]
Kind = Literal["|u1", "<i4", "<i8"]
_U1: Kind = "|u1"
_I4: Kind = "<i4"
_I8: Kind = "<i8"
_ENTRIES = "entries.json"
_BLOCK = 1 << 16


class Stored(BaseModel):
    """A file as it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    dtype: Kind
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    digest: str

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


class Contents(BaseModel):
    """What freezing made: files by name, and records by tag (to aggregate, by the empty one)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    files: dict[str, Stored]
    records: dict[str, int]


class ColumnWriter:
    """One array, written piece after piece along its records, in bounded memory."""

    def __init__(self, path: Path, dtype: Kind, *rest: int) -> None:
        self._path, self._dtype, self._rest = path, dtype, rest
        self._records = self._written = 0
        _create(path)

    def append(self, rows: Array) -> None:
        """The next records."""
        assert rows.shape[1:] == self._rest
        data = np.ascontiguousarray(rows, self._dtype)
        _write(self._path, data, self._written)
        self._records, self._written = self._records + len(rows), self._written + data.nbytes

    def translate(self, table: Array) -> None:
        """Replace every number by what the table has for it."""
        if self._records:
            mapped = np.memmap(self._path, self._dtype, "r+")
            for start in range(0, len(mapped), _BLOCK):
                mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
            mapped.flush()

    def close(self, order: Order | None = None, turned: bool = False) -> Stored:
        """Durable when this returns; the records in this order, if one is given.

        Turned, one value of all records lies together.
        """
        shape = (self._records, *self._rest)
        if order is not None and self._records:
            rows = self._mapped()
            _reorder(self._path, [*rows.T] if turned else [rows], order)
        return _finish(self._path, self._dtype, shape[::-1] if turned else shape)

    def in_order(self) -> Order:
        """The order of the records by what is written here: of ids, that of a dataset."""
        if not self._records:
            return np.empty(0, np.intp)
        rows = self._mapped()
        return np.argsort(np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel())

    def _mapped(self) -> Array:
        return np.memmap(self._path, self._dtype, "r", shape=(self._records, *self._rest))


class MeasuredWriter:
    """The records of a dataset to aggregate."""

    def __init__(self, folder: Path, measure: Measure) -> None:
        self._folder, self._records = folder, 0
        self._ids = ColumnWriter(folder / "ids", _U1, ID_BYTES)
        self._codes = [ColumnWriter(folder / f"codes-{i}", _I4) for i in range(len(measure.keys))]
        self._shares = ColumnWriter(folder / "shares", _I8, measure.secrets())
        self._names = measure.keys
        self._known: list[dict[Entry, int]] = [{} for _ in measure.keys]

    def append(self, records: Measured) -> None:
        """The next records. Their codes become those of the whole dataset."""
        self._records += len(records)
        self._ids.append(records.ids)
        self._shares.append(records.shares)
        for name, known, writer in zip(self._names, self._known, self._codes, strict=True):
            writer.append(_merged(records.keys[name], known))

    def close(self) -> Contents:
        """Durable when this returns, but for the folder's own name."""
        order = self._ids.in_order()
        ordered = [in_order(known) for known in self._known]
        for known, entries, writer in zip(self._known, ordered, self._codes, strict=True):
            rank = {entry: place for place, entry in enumerate(entries)}
            writer.translate(np.array([rank[entry] for entry in known], np.int32))
        files = {f"codes-{i}": writer.close(order) for i, writer in enumerate(self._codes)}
        files |= {"ids": self._ids.close(order), "shares": self._shares.close(order, turned=True)}
        writer = ColumnWriter(self._folder / _ENTRIES, _U1)
        writer.append(np.frombuffer(json.dumps(ordered).encode(), np.uint8))
        files[_ENTRIES] = writer.close()
        return Contents(files=files, records={"": self._records})


class TrainedWriter:
    """The records of a dataset to train: of every model of its document, where there are any."""

    def __init__(self, folder: Path, models: Mapping[str, Model]) -> None:
        self._models = models
        self._writers: dict[str, list[ColumnWriter]] = {}
        self._records = dict.fromkeys(models, 0)
        self._folder = folder

    def append(self, by_tag: Mapping[str, Trained]) -> None:
        """The next records of some models."""
        for tag, records in by_tag.items():
            model = self._models[tag]
            shown = [] if isinstance(model.policy, All) else records.candidates
            arrays: list[Array] = [records.ids, records.features, records.shares, *shown]
            for writer, array in zip(self._of(tag), arrays, strict=True):
                writer.append(array)
            self._records[tag] += len(records)

    def close(self) -> Contents:
        """Durable when this returns, but for the folder's own name."""
        files: dict[str, Stored] = {}
        for tag in self._models:
            names, writers = _trained_names(self._models, tag), self._of(tag)
            order = writers[0].in_order()
            files |= dict(zip(names, (writer.close(order) for writer in writers), strict=True))
        return Contents(files=files, records=self._records)

    def _of(self, tag: str) -> list[ColumnWriter]:
        if tag not in self._writers:
            model, names = self._models[tag], _trained_names(self._models, tag)
            kinds = [(_U1, ID_BYTES), (_U1, model.features), (_I8, model.secrets())]
            kinds += [(_I8, model.policy.count(space)) for space in model.labels]
            self._writers[tag] = [
                ColumnWriter(self._folder / name, dtype, width)
                for name, (dtype, width) in zip(names, kinds, strict=False)
            ]
        return self._writers[tag]


def read_measured(folder: Path, contents: Contents, measure: Measure) -> Measured:
    """The records of a dataset to aggregate, mapped. Checks every file."""
    parsed = json.loads(_open(folder, contents, _ENTRIES).tobytes())
    keys = {
        name: Coded(_open(folder, contents, f"codes-{i}"), tuple(parsed[i]))
        for i, name in enumerate(measure.keys)
    }
    return Measured(_open(folder, contents, "ids"), keys, _open(folder, contents, "shares").T)


def read_trained(folder: Path, contents: Contents, models: Mapping[str, Model], tag: str) -> Trained:
    """The records of one model, mapped. Checks every file."""
    ids, features, shares, *shown = (_open(folder, contents, name) for name in _trained_names(models, tag))
    model = models[tag]
    if isinstance(model.policy, All):
        shown = [np.array([space.values], np.int64) for space in model.labels]
    return Trained(ids, features, tuple(shown), shares)


def _trained_names(models: Mapping[str, Model], tag: str) -> list[str]:
    """The files of a model. Its place among all stands for its tag, which may hold any letters."""
    place, model = list(models).index(tag), models[tag]
    labels = 0 if isinstance(model.policy, All) else len(model.labels)
    kinds = ["ids", "features", "shares", *(f"candidates-{i}" for i in range(labels))]
    return [f"{place}-{kind}" for kind in kinds]


def _merged(coded: Coded, known: dict[Entry, int]) -> NDArray[np.int32]:
    """Codes of one dictionary as codes of another, which learns the entries that occur."""
    used, codes = np.unique(coded.codes, return_inverse=True)
    numbers = [known.setdefault(coded.entries[code], len(known)) for code in used.tolist()]
    return np.array(numbers, np.int32)[codes]


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _write(path: Path, array: Array, at: int) -> None:
    """Opened for every piece: a document may have more columns than a process may have open files."""
    if array.size:
        with path.open("r+b") as file:
            file.seek(at)
            array.tofile(file)


def _reorder(path: Path, arrays: Sequence[Array], order: Order) -> None:
    """Write a file anew from arrays that it holds, one after the other, the records of each in this order."""
    ordered = path.with_name(f"{path.name}.ordered")
    _create(ordered)
    with ordered.open("r+b") as file:
        for array in arrays:
            for start in range(0, len(order), _BLOCK):
                array[order[start : start + _BLOCK]].tofile(file)
    ordered.replace(path)


def _finish(path: Path, dtype: Kind, shape: Sequence[int]) -> Stored:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return Stored(dtype=dtype, shape=tuple(shape), digest=_digest(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(folder: Path, contents: Contents, name: str) -> Array:
    """One array, mapped: read-only, and exactly what was written."""
    stored, path = contents.files[name], folder / name
    try:
        whole = path.stat().st_size == stored.size and _digest(path) == stored.digest
    except OSError:
        whole = False
    if not whole:
        raise DamagedDataset(f"the file {name} of a dataset is missing or damaged: put it back from a copy")
    if not stored.size:
        return np.empty(stored.shape, stored.dtype)  # Nothing cannot be mapped.
    return np.memmap(path, stored.dtype, "r", shape=stored.shape).view(np.ndarray)
