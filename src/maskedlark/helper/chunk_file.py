"""The file of a chunk: what was decrypted of it, until the dataset is frozen. Run by a helper.

An uncompressed zip of arrays, whose checksums detect damage. It holds everything that could be decrypted; the
chunk's row states what is accepted, since that depends on other chunks.
"""

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.candidates import All
from maskedlark.core.declared import Model
from maskedlark.core.field import FieldArray
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ByteRows
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.helper.errors import DamagedDataset
from maskedlark.wire.decrypt import Opened, ids_of

PREFIX = "chunk-"
_FAULTS = OSError, EOFError, LookupError, RuntimeError, ValueError
_DAMAGE = *_FAULTS, struct.error, zlib.error, zipfile.BadZipFile
"""What damage raises: RuntimeError by an unknown cipher or packing, LookupError by a name (no checksum)."""
Array = NDArray[Any]


def write(files: DatasetFiles, opened: Opened) -> str:
    """Write a new file under a unique name, durable when this returns."""
    name = files.unique(PREFIX)
    files.write(name, lambda file: np.savez(file, allow_pickle=False, **_arrays(opened)))
    return name


def _arrays(opened: Opened) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        "parts": np.flatnonzero(opened.verdicts.accepted).astype(np.uint32),
        "heads": opened.heads,
    }
    if opened.checks is not None:
        arrays["checks"] = opened.checks
    if isinstance(opened.records, AggregateRecords):
        keys = opened.records.keys
        arrays["entries"] = _text({name: coded.entries for name, coded in keys.items()})
        arrays["shares"] = opened.records.shares
        return arrays | {f"codes-{i}": coded.codes for i, coded in enumerate(keys.values())}
    arrays["tags"] = _text(list(opened.records))
    for place, (tag, records) in enumerate(opened.records.items()):
        arrays[f"{place}-rows"] = opened.places[tag].astype(np.uint32)
        arrays[f"{place}-features"], arrays[f"{place}-shares"] = records.features, records.shares
        arrays |= {f"{place}-candidates-{i}": shown for i, shown in enumerate(records.candidates)}
        arrays |= {f"{place}-indices-{i}": indices for i, indices in enumerate(records.indices)}
    return arrays


def _text(value: object) -> Array:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


class KeptRecords(NamedTuple):
    """What is kept of a chunk."""

    records: AggregateRecords | dict[str, TrainingRecords]
    """To aggregate: all of them. To train: by tag."""
    heads: ByteRows
    """What the dataset's digest is computed from."""


class KeptChecks(NamedTuple):
    """What is published of a chunk's accepted parts."""

    ids: ByteRows
    numbers: FieldArray


def read(files: DatasetFiles, name: str, kept: NDArray[np.bool_], models: Mapping[str, Model]) -> KeptRecords:
    """The records of a chunk's kept parts. Refuses a file that is not as written."""
    with _reading(files, name) as file:
        arrays = dict(file)
        return _kept(arrays, _rows(name, arrays, kept), models)


def read_ids(files: DatasetFiles, name: str, kept: NDArray[np.bool_]) -> ByteRows:
    """The ids of a chunk's kept parts. Reads no other array."""
    with _reading(files, name) as arrays:
        return ids_of(arrays["heads"])[_rows(name, arrays, kept)]


def read_checks(files: DatasetFiles, name: str, accepted: NDArray[np.bool_]) -> KeptChecks:
    """The ids of a chunk's accepted parts, and our numbers for their check. Reads no other array."""
    with _reading(files, name) as arrays:
        rows = _rows(name, arrays, accepted)
        return KeptChecks(ids_of(arrays["heads"])[rows], arrays["checks"][rows])


@contextmanager
def _reading(files: DatasetFiles, name: str) -> Iterator[Mapping[str, Array]]:
    """The arrays of a file, each read when it is used."""
    try:
        with files.open(name) as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except _DAMAGE:
        raise DamagedDataset(f"{name} is missing or damaged: abort the dataset, send it again") from None


def _rows(file: str, arrays: Mapping[str, Array], kept: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows of kept parts."""
    parts = arrays["parts"]
    if len(parts) and int(parts.max()) >= len(kept):
        raise DamagedDataset(f"{file} holds other parts than its chunk")
    rows = np.flatnonzero(kept[parts])
    if len(rows) != int(kept.sum()):
        raise DamagedDataset(f"{file} holds fewer records than were accepted")
    return rows


def _kept(arrays: Mapping[str, Array], rows: NDArray[np.intp], models: Mapping[str, Model]) -> KeptRecords:
    heads = arrays["heads"][rows]
    records: AggregateRecords | dict[str, TrainingRecords]
    if "entries" in arrays:
        entries = json.loads(arrays["entries"].tobytes())
        coded = [
            Coded(arrays[f"codes-{i}"][rows], tuple(values)) for i, values in enumerate(entries.values())
        ]
        records = AggregateRecords(
            ids_of(heads), dict(zip(entries, coded, strict=True)), arrays["shares"][rows]
        )
    else:
        tags = json.loads(arrays["tags"].tobytes())
        records = {tag: _of_model(arrays, place, models[tag], rows) for place, tag in enumerate(tags)}
    return KeptRecords(records, heads)


def _of_model(
    arrays: Mapping[str, Array], place: int, model: Model, kept: NDArray[np.intp]
) -> TrainingRecords:
    rows = arrays[f"{place}-rows"]
    mine = np.isin(rows, kept)
    shown = [arrays[f"{place}-candidates-{i}"] for i in range(len(model.labels))]
    return TrainingRecords(
        ids_of(arrays["heads"])[rows[mine]],
        arrays[f"{place}-features"][mine],
        # Where a model shows all candidates, one row stands for every record.
        tuple(shown if isinstance(model.policy, All) else [each[mine] for each in shown]),
        arrays[f"{place}-shares"][mine],
        tuple(arrays[f"{place}-indices-{i}"][mine] for i in range(len(model.indexed))),
    )
