"""Freezing: what all helpers accepted of every chunk becomes a dataset that never changes. Run by a helper.

The ad server requests it with the list of what all accepted. `agree` and `merge` determine the
dataset; `Freezer` commits it, in one transaction with its receipt.
"""

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select, update

from maskedlark.clock import SECONDS_AN_HOUR
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import Expired
from maskedlark.helper import chunk_file, columns, tables
from maskedlark.helper.columns import Contents, MeasuredWriter, TrainedWriter
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.errors import Busy
from maskedlark.helper.tables import CHUNKS, DATASETS, FROZEN, OPEN, ChunkRow, DatasetRow
from maskedlark.ledger import receipt
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import LockHeld, StorageUnavailable
from maskedlark.web import files
from maskedlark.web.errors import (
    AlreadyFrozen,
    ChunksMissing,
    ChunkUnchecked,
    FreezeMismatch,
    NotAccepted,
    TooFewToFreeze,
    TooManyToFreeze,
    UnknownDataset,
)
from maskedlark.wire import datasets
from maskedlark.wire.datasets import FreezeRequest, Frozen
from maskedlark.wire.decrypt import hours_of


@dataclass(eq=False)
class FrozenDataset:
    """A frozen dataset for queries: columns are mapped on first use. Threads may share it."""

    digest: bytes
    document: Document
    purpose: Purpose
    expires: int
    folder: Path
    contents: Contents
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mapped: dict[str | None, Records] = field(default_factory=dict)

    def size(self, tag: str | None) -> int:
        """The number of records, of this model. Touches no file."""
        return self.contents.records.get(tag or "", 0)

    def records(self, tag: str | None) -> Records:
        """Its columns and shares. Checked once, when they are mapped."""
        with self._lock:
            if tag not in self._mapped:
                self._mapped[tag] = self._open(tag)
            return self._mapped[tag]

    def _open(self, tag: str | None) -> Records:
        if tag is None:
            return columns.read_measured(self.folder, self.contents, self.document.measure)
        return columns.read_trained(self.folder, self.contents, self.document.declared_models, tag)


class AgreedChunk(NamedTuple):
    """A received chunk: its file, which of its parts we accepted, and which all did and are valid."""

    number: int
    file: str
    accepted: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    invalid: int


class Merged(NamedTuple):
    """The columns of a dataset about to be frozen."""

    digest: bytes
    records: int
    expires: int
    contents: Contents


def agree(chunks: Sequence[ChunkRow], request: FreezeRequest, document: Document) -> list[AgreedChunk]:
    """What is kept of every chunk. Refuses a request that does not match what we have, or fewer than k.

    Where reports are checked, only valid ones are kept: before digest, order and seeds, which are of these.
    """
    numbers, wanted = [chunk.number for chunk in chunks], range(len(request.accepted))
    if numbers != [*wanted]:
        missing = sorted(set(wanted) - set(numbers))
        raise ChunksMissing(
            f"{len(chunks)} chunks were received, {len(wanted)} are to be frozen"
            + (f"; send chunk {missing[0]} first" if missing else "; name all of them")
        )
    agreed = []
    for row, bitmap in zip(chunks, request.accepted, strict=True):
        accepted, kept = datasets.unpack(row.accepted.hex(), row.parts), datasets.unpack(bitmap, row.parts)
        if (kept & ~accepted).any():
            raise NotAccepted(f"chunk {row.number} has parts in the request that this helper refused")
        if document.checked and (kept & ~_valid(row)).any():
            raise NotAccepted(f"chunk {row.number} has parts in the request that are not valid")
        agreed.append(AgreedChunk(row.number, row.file, accepted, kept, row.invalid or 0))
    if (records := sum(int(each.kept.sum()) for each in agreed)) < document.k:
        raise TooFewToFreeze(
            f"{records} reports were accepted by all helpers, and a dataset has at least k = {document.k}: "
            "abort it, and send them with others"
        )
    return agreed


def _valid(row: ChunkRow) -> NDArray[np.bool_]:
    """The valid parts of a chunk, by the numbers of all helpers."""
    if row.valid is None:
        raise ChunkUnchecked(
            f"chunk {row.number} was not checked by all helpers: get each one's check message, relay them"
        )
    return datasets.unpack(row.valid.hex(), row.parts)


def check_size(contents: Contents, document: Document) -> None:
    """Refuse what nobody could ask about: a report is in one dataset, and a frozen one never changes."""
    for tag, records in contents.records.items():
        if records > document.max_records:
            of = f" of {tag}" if tag else ""
            raise TooManyToFreeze(
                f"the dataset has {records} records{of}, and the document allows {document.max_records} in "
                "one release: abort it, and select them by shorter times"
            )


def fingerprint(request: FreezeRequest) -> bytes:
    """The digest by which a repeated request is recognised."""
    return hashlib.sha256("\n".join(request.accepted).encode()).digest()


def merge(
    source: Path, target: Path, document: Document, purpose: Purpose, agreed: Sequence[AgreedChunk]
) -> Merged:
    """Durably write the columns by report id, and the folder's name. `target` is a new, empty folder."""
    heads = []
    measured, models = purpose is Purpose.AGGREGATE, document.declared_models
    writer = MeasuredWriter(target, document.measure) if measured else TrainedWriter(target, models)
    for chunk in agreed:
        if chunk.kept.any():
            read = chunk_file.read(source / chunk.file, chunk.kept, models)
            writer.append(read.records)
            heads.append(read.heads)
    contents = writer.close()
    files.sync(target)
    files.sync(target.parent)
    reports = np.concatenate(heads)
    name = datasets.digest(document.origin, document.digest, purpose, reports)
    expires = (int(hours_of(reports).min()) + 1) * SECONDS_AN_HOUR + document.report_lifetime_s
    return Merged(name, len(reports), expires, contents)


class Freezer:
    """Freezes one dataset at a time, whichever process does: each reads and writes all of a dataset."""

    def __init__(self, context: DatasetContext, ledger: Ledger) -> None:
        self._context, self._ledger = context, ledger

    def freeze(self, origin: str, name: str, wanted: FreezeRequest, attempt: bytes) -> Frozen:
        """Freeze what all helpers accepted. The same request gets the same answer."""
        with self.alone():
            row = self._context.row(origin, name, attempt)
            if row.state == OPEN:
                try:
                    with self._context.writing(row.number):
                        self._freeze(row, wanted)
                finally:
                    self._context.sweep(row.number)  # Removes chunks, or columns not needed after all.
                row = self._context.row(origin, name, attempt)
        return self._answer(row, wanted)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Fail rather than block, so that waiting requests do not hold worker threads."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._context.freezing())
            except LockHeld:
                raise Busy("another dataset is being frozen; come again") from None
            yield

    def _freeze(self, row: DatasetRow, wanted: FreezeRequest) -> None:
        document, purpose = self._context.document(row), Purpose(row.purpose)
        with self._context.database.read() as connection:
            chunks = tables.chunks(connection, row.number)
        agreed = agree(chunks, wanted, document)
        folder = self._context.folder(row.number)
        try:
            with ExitStack() as undo:
                target = Path(tempfile.mkdtemp(prefix="columns-", dir=folder))  # 0700
                undo.callback(shutil.rmtree, target, ignore_errors=True)
                merged = merge(folder, target, document, purpose, agreed)
                if wanted.digest not in (None, merged.digest.hex()):
                    raise FreezeMismatch("this helper computes another digest: nothing was frozen")
                check_size(merged.contents, document)
                if merged.expires <= self._context.now():
                    raise Expired("a report of this dataset is past its lifetime: abort it, send the others")
                undo.pop_all()
        except OSError as error:
            raise StorageUnavailable("the columns cannot be written now; freeze it again later") from error
        # From here on the folder stays: if the database fails now, it may still have stored the new state.
        self._commit(row, fingerprint(wanted), agreed, target.name, merged)

    def _commit(
        self, row: DatasetRow, agreed_on: bytes, agreed: list[AgreedChunk], folder: str, merged: Merged
    ) -> None:
        """In one transaction: the new state, its receipt, and the release of the ids of what is left out."""
        with self._context.database.write() as connection:
            now = tables.by_name(connection, row.origin, row.name, lock=True)
            if now.number != row.number:
                raise UnknownDataset(f"dataset {row.name!r} was aborted, and another has its name")
            if now.state != OPEN:
                return  # Another process was first; its result counts.
            if len(tables.chunks(connection, row.number)) != len(agreed):
                raise ChunksMissing("a chunk came while the dataset was being frozen: name all of them")
            cursor = self._context.ids.lock(connection)
            gone = _drop_others(connection, row.number, agreed)
            freed = self._context.ids.free(connection, cursor, gone)
            document = self._context.document(row)
            invalid = sum(each.invalid for each in agreed) if document.checked else None
            made = Purpose(row.purpose), merged.digest, merged.records, invalid
            signed = self._ledger.freeze(connection, document, *made)
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(
                this.values(
                    state=FROZEN,
                    expires=merged.expires,
                    digest=merged.digest,
                    records=merged.records,
                    agreed=agreed_on,
                    folder=folder,
                    contents=merged.contents.model_dump_json(),
                    receipt=signed.encode(),
                )
            )
        self._context.ids.freed(freed, gone)

    def _answer(self, row: DatasetRow, wanted: FreezeRequest) -> Frozen:
        """What was answered to the request to freeze, if it was this one."""
        digest = row.digest.hex()
        if row.agreed != fingerprint(wanted) or wanted.digest not in (None, digest):
            raise AlreadyFrozen(f"dataset {row.name!r} is frozen with other content, and never changes")
        signed = receipt.decode(row.receipt)
        # Before it leaves, every time: the helper may have crashed right after the transaction.
        self._ledger.advance_anchor(row.origin, signed)
        return Frozen(digest=digest, records=row.records, receipt=signed.encode().decode())


def _drop_others(connection: Connection, dataset: int, agreed: Sequence[AgreedChunk]) -> ByteRows:
    """Limit chunks' claims to what all helpers accepted; returns the ids freed."""
    gone = [tables.ids_in()]
    for chunk in agreed:
        if (chunk.kept == chunk.accepted).all():
            continue
        this = CHUNKS.c.dataset == dataset, CHUNKS.c.number == chunk.number
        # In the order of the accepted parts; None if they were pruned.
        ids = tables.ids_in(connection.scalar(select(CHUNKS.c.ids).where(*this)))
        if len(ids):
            stays = chunk.kept[chunk.accepted]
            gone.append(ids[~stays])
            connection.execute(update(CHUNKS).where(*this).values(ids=ids[stays].tobytes()))
    return np.concatenate(gone)
