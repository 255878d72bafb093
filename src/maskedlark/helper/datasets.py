"""A helper's datasets: received in chunks, agreed upon, sealed once, and gone when their time is over.

Everything that matters is in the database. A file is written first and its row after it, so a file that no
row names is nothing, and is removed; a row that is there says what is true, however the helper ended.
"""

import hashlib
import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert, select, update

from maskedlark.clock import SECONDS_AN_HOUR, Clock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired, OutOfRange, PastLifetime
from maskedlark.helper import rows, sealing
from maskedlark.helper.columns import Contents
from maskedlark.helper.errors import Busy, Replayed
from maskedlark.helper.ids import MOST_LEAP_S, Ids
from maskedlark.helper.ingest import Ingest, Job, Taken
from maskedlark.helper.rows import ABORTED, EXPIRED, OPEN, SEALED, DatasetRow
from maskedlark.helper.sealed import SealedDataset
from maskedlark.helper.sealing import Agreed, Merged
from maskedlark.helper.tables import ABORTED_OPENINGS, CHUNKS, DATASETS, SCHEMA_VERSION, TABLES
from maskedlark.helper.upkeep import Upkeep
from maskedlark.privacy import document as documents
from maskedlark.privacy import receipt
from maskedlark.privacy.document import Document
from maskedlark.privacy.ledger import Ledger
from maskedlark.privacy.release import Dataset
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.storage.schema import prepare
from maskedlark.web import files
from maskedlark.web.errors import (
    AlreadySealed,
    ChunksMissing,
    DatasetConflict,
    NotNamed,
    SealMismatch,
    UnknownChunk,
    UnknownDataset,
)
from maskedlark.wire import datasets as wire
from maskedlark.wire.datasets import ChunkAnswer, Sealed, Sealing, State
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.terms import DatasetOpener, Terms

ABORTED_S = 3600
"""How long an aborted opening is remembered: longer than a signed request can be sent again."""


class Datasets:
    """All datasets of a helper, in one folder and one database. Threads may share it."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        ledger: Ledger,
        keys: Callable[[], Mapping[bytes, OpeningKey]],
        helper: str,
        clock: Clock,
        workers: int,
        most_leap_s: int = MOST_LEAP_S,
    ) -> None:
        prepare(database, "datasets", SCHEMA_VERSION, TABLES)
        try:
            _make(folder)
        except OSError as error:
            raise StorageUnavailable("the folder of columns cannot be written; try again later") from error
        self._folder, self._database, self._ledger = folder, database, ledger
        self._keys, self._helper, self._clock = keys, helper, clock
        self._ids = Ids(database, folder, most_leap_s)
        self._ingest = Ingest(workers)
        self._upkeep = Upkeep(folder, database, self._ids)
        self._lock, self._sealing = threading.Lock(), threading.Lock()
        self._documents: dict[bytes, Document] = {}
        self._found: dict[tuple[str, bytes], SealedDataset] = {}

    def open(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> State:
        """Begin a dataset, or find it as it is. Refuses a name in use for anything else."""
        self._place(document)
        while (state := self._open(document, name, purpose, opening)) is None:
            self._upkeep.finish_aborts()
        return state

    def _open(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> State | None:
        """None while another dataset of this name is on its way out."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            if rows.is_going(connection, document.origin, name):
                return None
            if rows.was_aborted(connection, document.origin, opening):
                raise DatasetConflict(f"this opening of {name!r} was aborted; open it by another")
            try:
                row = rows.by_name(connection, document.origin, name)
            except UnknownDataset:
                connection.execute(insert(DATASETS).values(self._new(document, name, purpose, opening)))
                row = rows.by_name(connection, document.origin, name)
            found = bytes(row.parameters), row.purpose, bytes(row.opening)
            if found != (document.digest, purpose.value, opening):
                raise DatasetConflict(
                    f"{name!r} is of another document, purpose or opening; choose another name"
                )
            return rows.state(row, rows.chunks(connection, row.number))

    def add(self, origin: str, name: str, number: int, body: bytes, opening: bytes) -> ChunkAnswer:
        """Take a chunk: open it, claim the ids of what opened. Durable when this returns, and done once."""
        if not 0 <= number < wire.MOST_CHUNKS:
            raise OutOfRange(f"chunks have numbers from 0 to {wire.MOST_CHUNKS - 1}")
        digest = hashlib.sha256(body).digest()
        with self._database.read() as connection:
            row = rows.by_name(connection, origin, name, opening)
            before = rows.chunk(connection, row.number, number)
        if before is not None:
            return rows.answer(before, digest)
        if row.state != OPEN:
            raise AlreadySealed(f"dataset {name!r} is {row.state}: it takes no more chunks")
        with self._upkeep.working(row.number):
            taken = self._take(row, body)
            return self._claim(row, number, digest, taken)

    def chunk(self, origin: str, name: str, number: int) -> ChunkAnswer:
        """What was answered for a chunk."""
        with self._database.read() as connection:
            found = rows.chunk(connection, rows.by_name(connection, origin, name).number, number)
        if found is None:
            raise UnknownChunk(f"chunk {number} of {name!r} was not received")
        return rows.answer(found)

    def state(self, origin: str, name: str) -> State:
        """Where a dataset stands."""
        with self._database.read() as connection:
            row = rows.by_name(connection, origin, name)
            return rows.state(row, rows.chunks(connection, row.number))

    def seal(self, origin: str, name: str, sealing: Sealing, opening: bytes) -> Sealed:
        """Make what all helpers accepted a dataset that never changes. The same seal gets the same answer."""
        # One at a time: each reads and writes all of a dataset.
        with self._alone():
            row = self._row(origin, name, opening)
            if row.state == OPEN:
                try:
                    with self._upkeep.working(row.number):
                        self._seal(row, sealing)
                finally:
                    self._upkeep.sweep(row.number)  # Chunks, or columns that were not sealed after all.
                row = self._row(origin, name, opening)
        return self._sealed(row, sealing)

    def abort(self, origin: str, name: str, opening: bytes) -> None:
        """Give up a dataset that is not sealed: its reports may be in another."""
        # Not while it is being sealed: who reads its files would find them gone.
        with self._alone(), self._database.write() as connection:
            row = rows.by_name(connection, origin, name, opening, lock=True)
            if row.state != OPEN:
                raise AlreadySealed(f"dataset {name!r} is {row.state} and never changes")
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(this.values(state=ABORTED))
            # Who saw its requests may send them again: they must not open it, and take its ids, anew.
            until = self._clock.now() + ABORTED_S
            self._database.insert_new(connection, ABORTED_OPENINGS, [(origin, opening, until)])
        self._upkeep.finish_aborts()

    def find(self, origin: str, digest: bytes) -> Dataset:
        """A sealed dataset of an origin, as long as no report in it is past its lifetime."""
        with self._lock:
            found = self._found.get((origin, digest))
        found = found or self._load(origin, digest)
        if found.expires <= self._now():
            raise _over(digest)
        with self._lock:
            self._found[origin, digest] = found
        return found

    def forget(self) -> None:
        """Delete what is past its lifetime, and what no row names. Run at the start, and every hour."""
        self._ids.prune(self._clock.now())
        now = self._now()
        self._upkeep.expire(now)
        self._upkeep.finish_aborts()
        self._upkeep.sweep_all()
        with self._lock:
            self._found = {name: each for name, each in self._found.items() if each.expires > now}

    def close(self) -> None:
        """End the workers."""
        self._ingest.close()

    # Taking a chunk.

    def _take(self, row: DatasetRow, body: bytes) -> Taken:
        folder = self._upkeep.folder(row.number)
        try:
            _make(folder)
            return self._ingest.take(Job(self._opener(row), body, folder))
        except OSError as error:
            self._row(row.origin, row.name, bytes(row.opening))  # Was it aborted, and its folder with it?
            raise StorageUnavailable("the chunk cannot be written now; send it again later") from error

    def _claim(self, row: DatasetRow, number: int, body: bytes, taken: Taken) -> ChunkAnswer:
        """In one transaction: which of the opened reports are new, and the chunk."""
        lifetime = self._document(row).report_lifetime_s
        expires = (taken.hours.astype(np.int64) + 1) * SECONDS_AN_HOUR + lifetime
        with self._database.write() as connection:
            if not rows.keep_open(connection, row):
                row = rows.by_name(connection, row.origin, row.name, bytes(row.opening))
                raise AlreadySealed(f"dataset {row.name!r} is {row.state}: it takes no more chunks")
            mark = self._ids.lock(connection)
            before = rows.chunk(connection, row.number, number)
            if before is not None:  # Somebody sent it at the same time, and was first.
                (self._upkeep.folder(row.number) / taken.file).unlink(missing_ok=True)
                return rows.answer(before, body)
            past = expires <= mark.watermark
            replayed = self._ids.taken(connection, mark, taken.ids) & ~past
            new, answer = ~past & ~replayed, _answer(taken, past, replayed)
            claim, ids = self._ids.claim(connection, mark), taken.ids[new]
            made = {
                "dataset": row.number,
                "number": number,
                "claim": claim,
                "expires": int(expires[new].max()) if new.any() else row.expires,
                "body": body,
                "parts": answer.parts,
                "accepted": bytes.fromhex(answer.accepted),
                "refused": json.dumps(answer.refused),
                "file": taken.file,
                "ids": ids.tobytes(),
            }
            connection.execute(insert(CHUNKS).values(made))
        self._ids.claimed(mark, ids)
        return answer

    def _opener(self, row: DatasetRow) -> DatasetOpener:
        document, purpose = self._document(row), Purpose(row.purpose)
        return DatasetOpener(
            self._helper,
            self._place(document),
            self._keys(),
            document.measure if purpose is Purpose.AGGREGATE else document.declared_models,
            document.payload_size(purpose),
            Terms(document.origin, document.digest, document.report_lifetime_s, self._now()),
        )

    # Sealing.

    def _seal(self, row: DatasetRow, wanted: Sealing) -> None:
        document, purpose = self._document(row), Purpose(row.purpose)
        with self._database.read() as connection:
            received = [rows.received(each) for each in rows.chunks(connection, row.number)]
        agreed = sealing.agree(received, wanted)
        folder = self._upkeep.folder(row.number)
        try:
            target = Path(tempfile.mkdtemp(prefix="columns-", dir=folder))  # 0700
            with _removed_on_failure(target):
                merged = sealing.merge(folder, target, document, purpose, agreed)
                self._check(merged, wanted)
        except OSError as error:
            raise StorageUnavailable("the columns cannot be written now; seal it again later") from error
        # From here on the folder stays: if the database goes away, it may have the seal all the same.
        self._commit(row, sealing.fingerprint(wanted), agreed, target.name, merged)

    def _check(self, merged: Merged, wanted: Sealing) -> None:
        if wanted.digest is not None and bytes.fromhex(wanted.digest) != merged.digest:
            raise SealMismatch("this helper finds another dataset than the other: nothing was sealed")
        if merged.expires <= self._now():
            raise Expired("a report of this dataset is past its lifetime: abort it, and send the others")

    def _commit(
        self, row: DatasetRow, agreed_on: bytes, agreed: list[Agreed], folder: str, merged: Merged
    ) -> None:
        """In one transaction: sealed, with its receipt, and the ids of what is not in it free again."""
        with self._database.write() as connection:
            found = rows.by_name(connection, row.origin, row.name, lock=True)
            if found.number != row.number:
                raise UnknownDataset(f"dataset {row.name!r} was aborted, and another has its name")
            if found.state != OPEN:
                return  # Another process was first; its seal is the one that counts.
            if len(rows.chunks(connection, row.number)) != len(agreed):
                raise ChunksMissing("a chunk came while the dataset was being sealed: name all of them")
            mark = self._ids.lock(connection)
            gone = rows.keep(connection, row.number, agreed)
            freed = self._ids.free(connection, mark) if len(gone) else 0
            signed = self._ledger.seal(
                connection, self._document(row), Purpose(row.purpose), merged.digest, merged.records
            )
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(
                this.values(
                    state=SEALED,
                    expires=merged.expires,
                    digest=merged.digest,
                    records=merged.records,
                    agreed=agreed_on,
                    folder=folder,
                    contents=merged.contents.model_dump_json(),
                    receipt=signed.encode(),
                )
            )
        if len(gone):
            self._ids.freed(freed, gone)

    def _sealed(self, row: DatasetRow, wanted: Sealing) -> Sealed:
        """What was answered to the seal, if it was this one."""
        found = bytes(row.digest).hex()
        if bytes(row.agreed) != sealing.fingerprint(wanted) or wanted.digest not in (None, found):
            raise AlreadySealed(f"dataset {row.name!r} is sealed with other content, and never changes")
        signed = receipt.decode(bytes(row.receipt))
        # Before it leaves, every time: the helper may have ended right behind the transaction.
        self._ledger.remember(row.origin, signed)
        return Sealed(digest=found, records=row.records, receipt=signed.encode().decode())

    # Finding and forgetting.

    def _load(self, origin: str, digest: bytes) -> SealedDataset:
        query = select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.digest == digest)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise UnknownDataset(f"{origin} has no sealed dataset {digest.hex()} here")
        if row.state == EXPIRED:
            raise _over(digest)
        folder, contents = (
            self._upkeep.folder(row.number) / row.folder,
            Contents.model_validate_json(row.contents),
        )
        return SealedDataset(digest, self._document(row), Purpose(row.purpose), row.expires, folder, contents)

    # What everything needs.

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody waits here: whoever waited would keep a thread from those who need none of this."""
        if not self._sealing.acquire(blocking=False):
            raise Busy("another dataset is being sealed; come again")
        try:
            yield
        finally:
            self._sealing.release()

    def _now(self) -> int:
        """The moment, never before one at which ids were pruned."""
        return max(self._clock.now(), self._ids.watermark())

    def _row(self, origin: str, name: str, opening: bytes) -> DatasetRow:
        with self._database.read() as connection:
            return rows.by_name(connection, origin, name, opening)

    def _document(self, row: DatasetRow) -> Document:
        name = bytes(row.parameters)
        if name not in self._documents:
            self._documents[name] = documents.decode(bytes(row.document))
        return self._documents[name]

    def _place(self, document: Document) -> int:
        names = [helper.name for helper in document.helpers]
        if self._helper not in names:
            raise NotNamed(f"version {document.version} of {document.origin} does not name {self._helper}")
        return names.index(self._helper)

    def _new(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> dict[str, object]:
        return {
            "origin": document.origin,
            "name": name,
            "opening": opening,
            "purpose": purpose.value,
            "parameters": document.digest,
            "document": document.encode(),
            "state": OPEN,
            "expires": self._clock.now() + document.report_lifetime_s,
        }


def _answer(taken: Taken, past: NDArray[np.bool_], replayed: NDArray[np.bool_]) -> ChunkAnswer:
    """What is accepted of a chunk, of whose opened reports some are too old or in a dataset already."""
    refused = Counter(taken.refused)
    refused.update({PastLifetime.__name__: int(past.sum()), Replayed.__name__: int(replayed.sum())})
    accepted = taken.accepted.copy()
    accepted[np.flatnonzero(accepted)[past | replayed]] = False
    return ChunkAnswer(parts=len(accepted), accepted=wire.pack(accepted), refused=dict(+refused))


def _make(folder: Path) -> None:
    """A folder that is ours alone; its name is durable when this returns."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    files.sync(folder.parent)


def _over(digest: bytes) -> Expired:
    return Expired(f"dataset {digest.hex()} holds a report that is past its lifetime: it is gone")


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
