"""Sealing: what all helpers accepted of every chunk becomes the columns of a dataset. Run by a helper."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.clock import SECONDS_AN_HOUR
from maskedlark.core.purpose import Purpose
from maskedlark.helper.chunk_file import ChunkFile
from maskedlark.helper.columns import Contents, MeasuredWriter, TrainedWriter
from maskedlark.parameters.document import Document
from maskedlark.web import files
from maskedlark.web.errors import ChunksMissing, NotAccepted, TooFewToSeal
from maskedlark.wire import datasets
from maskedlark.wire.datasets import Sealing


class Received(NamedTuple):
    """A chunk that was received: its number, its file, and which of its parts we accepted."""

    number: int
    file: str
    accepted: NDArray[np.bool_]


class Agreed(NamedTuple):
    """A chunk's file, and which of its parts all helpers accepted."""

    chunk: Received
    kept: NDArray[np.bool_]


class Merged(NamedTuple):
    """The columns of a dataset that is about to be sealed."""

    digest: bytes
    records: int
    expires: int
    contents: Contents


def agree(chunks: Sequence[Received], sealing: Sealing, k: int) -> list[Agreed]:
    """What is kept of every chunk. Refuses a seal that is not over what we have, or over fewer than k."""
    numbers, wanted = [chunk.number for chunk in chunks], range(len(sealing.accepted))
    if numbers != [*wanted]:
        missing = sorted(set(wanted) - set(numbers))
        raise ChunksMissing(
            f"{len(chunks)} chunks were received, {len(wanted)} are to be sealed"
            + (f"; send chunk {missing[0]} first" if missing else "; name all of them")
        )
    agreed = [
        Agreed(chunk, datasets.unpack(bitmap, len(chunk.accepted)))
        for chunk, bitmap in zip(chunks, sealing.accepted, strict=True)
    ]
    for chunk, kept in agreed:
        if (kept & ~chunk.accepted).any():
            raise NotAccepted(f"chunk {chunk.number} has parts in the seal that this helper refused")
    if (records := sum(int(each.kept.sum()) for each in agreed)) < k:
        raise TooFewToSeal(
            f"{records} reports were accepted by all helpers, and a dataset has at least k = {k}: abort it, "
            "and send them with others"
        )
    return agreed


def fingerprint(sealing: Sealing) -> bytes:
    """By which a seal that is sent again is known."""
    return hashlib.sha256("\n".join(sealing.accepted).encode()).digest()


def merge(
    source: Path, target: Path, document: Document, purpose: Purpose, agreed: Sequence[Agreed]
) -> Merged:
    """Write the columns, by report id, durably, its name too. `target` is a new and empty folder."""
    records = sum(int(kept.sum()) for _, kept in agreed)
    members, oldest = [], []
    measured = purpose is Purpose.AGGREGATE
    models = document.declared_models
    writer = MeasuredWriter(target, document.measure, records) if measured else TrainedWriter(target, models)
    for chunk, kept in agreed:
        if kept.any():
            file = ChunkFile(source / chunk.file, kept)
            if isinstance(writer, MeasuredWriter):
                writer.append(file.measured())
            else:
                writer.append(file.trained(models))
            members.append(file.members())
            oldest.append(int(file.hours().min()))
    contents = writer.close()
    files.sync(target)
    files.sync(target.parent)
    name = datasets.digest(document.origin, document.digest, purpose, np.concatenate(members))
    return Merged(name, records, expiry(min(oldest), document), contents)


def expiry(hour: int, document: Document) -> int:
    """When a report of an hour is past its lifetime."""
    return (hour + 1) * SECONDS_AN_HOUR + document.report_lifetime_s
