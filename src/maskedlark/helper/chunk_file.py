"""The file of a chunk: what was opened of it, until the dataset is frozen. Run by a helper.

An uncompressed zip of arrays, whose checksums tell damage. It holds everything that could be opened; which
of it is accepted is in the chunk's row, since it depends on what other chunks hold.
"""

import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.candidates import All
from maskedlark.core.declared import Model
from maskedlark.core.records import Coded, Measured, Trained
from maskedlark.core.sharing import ByteRows
from maskedlark.helper.errors import DamagedDataset
from maskedlark.web import files
from maskedlark.wire import datasets
from maskedlark.wire.decrypt import Opened

PREFIX = "chunk-"
_FAULTS = OSError, EOFError, KeyError, RuntimeError, ValueError
_DAMAGE = *_FAULTS, struct.error, zlib.error, zipfile.BadZipFile
"""What a changed zip or array ends in. A runtime error: a version, cipher or packing not known."""
Array = NDArray[Any]
Index = NDArray[np.intp]


def write(folder: Path, opened: Opened) -> str:
    """Write a new file, durable when this returns; its name is of no other file."""
    handle, path = tempfile.mkstemp(dir=folder, prefix=PREFIX)  # 0600
    with os.fdopen(handle, "wb") as file:
        np.savez(file, allow_pickle=False, **_arrays(opened))
        file.flush()
        os.fsync(file.fileno())
    files.sync(folder)
    return Path(path).name


def _arrays(opened: Opened) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        "parts": np.flatnonzero(opened.verdicts.accepted).astype(np.uint32),
        "hours": opened.hours,
        "ids": opened.ids,
        "hashes": opened.column_hashes,
    }
    if isinstance(opened.records, Measured):
        return arrays | _measured(opened.records)
    arrays["tags"] = _text(list(opened.records))
    for place, (tag, records) in enumerate(opened.records.items()):
        arrays[f"{place}-rows"] = opened.places[tag].astype(np.uint32)
        arrays[f"{place}-features"], arrays[f"{place}-shares"] = records.features, records.shares
        arrays |= {f"{place}-candidates-{i}": shown for i, shown in enumerate(records.candidates)}
    return arrays


def _measured(records: Measured) -> dict[str, Array]:
    codes = {f"codes-{i}": coded.codes for i, coded in enumerate(records.keys.values())}
    entries = _text({name: list(coded.entries) for name, coded in records.keys.items()})
    return {"entries": entries, "shares": records.shares, **codes}


def _text(value: object) -> Array:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


class ChunkFile:
    """The file of a chunk, of which the kept parts are read."""

    def __init__(self, path: Path, kept: NDArray[np.bool_]) -> None:
        self._arrays = _load(path)
        parts = self._arrays["parts"]
        if len(parts) and int(parts.max()) >= len(kept):
            raise DamagedDataset(f"{path.name} holds other parts than its chunk")
        self._rows: Index = np.flatnonzero(kept[parts])
        if len(self._rows) != int(kept.sum()):
            raise DamagedDataset(f"{path.name} holds fewer records than were accepted")

    def ids(self) -> ByteRows:
        """Of all kept records."""
        return self._arrays["ids"][self._rows]

    def hours(self) -> NDArray[np.uint32]:
        """Of all kept records."""
        return self._arrays["hours"][self._rows]

    def members(self) -> ByteRows:
        """Of all kept records, what the dataset's digest is made of."""
        return datasets.members(self.ids(), self.hours(), self._arrays["hashes"][self._rows])

    def measured(self) -> Measured:
        """The kept records of a chunk to aggregate."""
        keys = {}
        for i, (name, entries) in enumerate(_parsed(self._arrays["entries"]).items()):
            keys[name] = Coded(self._arrays[f"codes-{i}"][self._rows], tuple(entries))
        return Measured(self.ids(), keys, self._arrays["shares"][self._rows])

    def trained(self, models: Mapping[str, Model]) -> dict[str, Trained]:
        """The kept records of a chunk to train, by tag."""
        tags = _parsed(self._arrays["tags"])
        return {tag: self._of_model(place, models[tag]) for place, tag in enumerate(tags)}

    def _of_model(self, place: int, model: Model) -> Trained:
        rows = self._arrays[f"{place}-rows"]
        mine = np.isin(rows, self._rows)
        shown = [self._arrays[f"{place}-candidates-{i}"] for i in range(len(model.labels))]
        return Trained(
            self._arrays["ids"][rows[mine]],
            self._arrays[f"{place}-features"][mine],
            # Where a model shows all candidates, one row of them stands for every record.
            tuple(shown if isinstance(model.policy, All) else [each[mine] for each in shown]),
            self._arrays[f"{place}-shares"][mine],
        )


class _Arrays(dict[str, Array]):
    """Arrays by name. The zip's checksums are of contents: a damaged name is an array that is not there."""

    def __init__(self, file: str, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self._file = file

    def __missing__(self, name: str) -> Array:
        raise _damaged(self._file)


def _load(path: Path) -> _Arrays:
    """All arrays of a chunk, whose checksums hold."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _Arrays(path.name, dict(arrays))
    except _DAMAGE:
        raise _damaged(path.name) from None


def _damaged(name: str) -> DamagedDataset:
    return DamagedDataset(f"{name} is missing or damaged: abort the dataset, send it again")


def _parsed(text: Array) -> Any:  # noqa: ANN401
    return json.loads(text.tobytes())
