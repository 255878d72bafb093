"""Freezing: what all helpers accepted of every chunk becomes a dataset that never changes. Run by a helper.

The ad server requests it with the list of what all accepted. `agree` and `merge` determine the
dataset; `Freezer` commits it, in one transaction with its receipt.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select, update

from maskedlark.clock import SECONDS_AN_HOUR
from maskedlark.compute.engine import Engine
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import Expired
from maskedlark.helper import chunk_file, sharding, tables
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.helper.errors import Busy
from maskedlark.helper.sharding import Range, RangeWriter, Sorting, sort_range
from maskedlark.helper.tables import CHUNKS, DATASETS, FROZEN, OPEN, ChunkRow, DatasetRow
from maskedlark.ledger import receipt
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release.under_way import UNDER_WAY
from maskedlark.storage.errors import LockHeld, StorageUnavailable
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
from maskedlark.wire.datasets import DatasetDigest, FreezeRequest, Frozen
from maskedlark.wire.decrypt import hours_of


class AgreedChunk(NamedTuple):
    """A received chunk: its file, which of its parts we accepted, and which all did and are valid.

    Bitmaps as they came: of all chunks they are held at once.
    """

    number: int
    file: str
    parts: int
    accepted_bits: str
    kept_bits: str
    invalid: int

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """By part."""
        return datasets.unpack(self.accepted_bits, self.parts)

    @property
    def kept(self) -> NDArray[np.bool_]:
        """By part."""
        return datasets.unpack(self.kept_bits, self.parts)

    @property
    def records(self) -> int:
        """How many are kept."""
        return int(self.kept_bits or "0", 16).bit_count()


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
        bits = row.accepted.hex(), bitmap
        agreed.append(AgreedChunk(row.number, row.file, row.parts, *bits, row.invalid or 0))
    if (records := sum(each.records for each in agreed)) < document.k:
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
    engine: Engine,
    source: DatasetFiles,
    target: DatasetFiles,
    document: Document,
    purpose: Purpose,
    agreed: Sequence[AgreedChunk],
    shard_bytes: int,
    rng: Randomness,
) -> Merged:
    """Durably write the columns by report id, in shards. `target` is a new, empty folder."""
    declared = document.measure if purpose is Purpose.AGGREGATE else document.declared_models
    chunks = [each for each in agreed if each.records]
    records = sum(each.records for each in chunks)
    shards = max(1, -(-records * sharding.row_bytes(declared) // shard_bytes))
    ids = (chunk_file.read_ids(source, each.file, each.kept) for each in chunks)
    writer = RangeWriter(target, declared, sharding.ranges(ids, records, shards, rng))
    with UNDER_WAY.counted("freeze: deal out", len(chunks)) as progress:
        for done, each in enumerate(chunks, 1):
            writer.append(chunk_file.read(source, each.file, each.kept, document.declared_models))
            progress(done)
    writer.flush()
    entries, ranks = sharding.write_entries(target, writer)
    ranges = [Range(number, tuple(pieces)) for number, pieces in enumerate(writer.pieces)]
    with UNDER_WAY.counted("freeze: sort", len(ranges)) as progress:
        made = engine.map(sort_range, Sorting(target, declared, ranks), ranges, progress)
    contents = Contents(shards=tuple(made), files=entries)
    name, first = DatasetDigest(document.origin, document.digest, purpose), int(np.iinfo(np.uint32).max)
    for number in range(len(ranges)):
        heads = sharding.sorted_heads(target, number)
        name.update(heads)
        first = min(first, int(hours_of(heads).min(initial=first)))
    sharding.remove_all_but(target, contents)
    expires = (first + 1) * SECONDS_AN_HOUR + document.report_lifetime_s
    return Merged(name.digest(), records, expires, contents)


class Freezer:
    """Freezes one dataset at a time, whichever process does: each reads and writes all of a dataset."""

    def __init__(
        self, context: DatasetContext, ledger: Ledger, engine: Engine, shard_bytes: int, rng: Randomness
    ) -> None:
        self._context, self._ledger, self._engine = context, ledger, engine
        self._cut = shard_bytes, rng

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
        files = self._context.files(row.number)
        folder = files.unique("columns-")
        target = files.within(folder)
        try:
            with ExitStack() as undo:
                target.make()
                undo.callback(target.remove_all)
                merged = merge(self._engine, files, target, document, purpose, agreed, *self._cut)
                if wanted.digest not in (None, merged.digest.hex()):
                    raise FreezeMismatch("this helper computes another digest: nothing was frozen")
                check_size(merged.contents, document)
                if merged.expires <= self._context.now():
                    raise Expired("a report of this dataset is past its lifetime: abort it, send the others")
                undo.pop_all()
        except OSError as error:
            raise StorageUnavailable("the columns cannot be written now; freeze it again later") from error
        # From here on the folder stays: if the database fails now, it may still have stored the new state.
        self._commit(row, fingerprint(wanted), agreed, folder, merged)

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
