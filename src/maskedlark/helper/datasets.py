"""A helper's datasets: received in chunks, agreed upon, sealed once, and gone when their time is over.

Run by a helper. `intake` takes chunks, `sealer` seals, and all stand on one `shelf`.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import insert, select, update

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired
from maskedlark.helper import rows
from maskedlark.helper.columns import Contents
from maskedlark.helper.ids import MOST_LEAP_S
from maskedlark.helper.intake import Intake
from maskedlark.helper.rows import ABORTED, EXPIRED, OPEN
from maskedlark.helper.sealed import SealedDataset
from maskedlark.helper.sealer import Sealer
from maskedlark.helper.shelf import Shelf
from maskedlark.helper.tables import ABORTED_OPENINGS, DATASETS, LOST
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Document
from maskedlark.release.checks import Dataset
from maskedlark.storage.engine import Database
from maskedlark.web.errors import (
    AlreadySealed,
    DatasetConflict,
    DatasetLost,
    UnknownChunk,
    UnknownDataset,
)
from maskedlark.wire.datasets import ChunkAnswer, Sealed, Sealing, State
from maskedlark.wire.hpke import OpeningKey

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
        self._shelf = Shelf(folder, database, helper, clock, most_leap_s)
        self._intake = Intake(self._shelf, keys, workers)
        self._sealer = Sealer(self._shelf, ledger)
        self._lock = threading.Lock()
        self._found: dict[tuple[str, bytes], SealedDataset] = {}

    def open(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> State:
        """Begin a dataset, or find it as it is. Refuses a name in use for anything else."""
        self._shelf.place(document)
        while (state := self._open(document, name, purpose, opening)) is None:
            self._shelf.upkeep.finish_aborts()
        return state

    def _open(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> State | None:
        """None while another dataset of this name is on its way out."""
        with self._shelf.database.write() as connection:
            self._shelf.database.alone(connection, "datasets")
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
        return self._intake.take(origin, name, number, body, opening)

    def chunk(self, origin: str, name: str, number: int) -> ChunkAnswer:
        """What was answered for a chunk."""
        with self._shelf.database.read() as connection:
            found = rows.chunk(connection, rows.by_name(connection, origin, name).number, number)
        if found is None:
            raise UnknownChunk(f"chunk {number} of {name!r} was not received")
        return rows.answer(found)

    def state(self, origin: str, name: str) -> State:
        """Where a dataset stands."""
        with self._shelf.database.read() as connection:
            row = rows.by_name(connection, origin, name)
            return rows.state(row, rows.chunks(connection, row.number))

    def seal(self, origin: str, name: str, sealing: Sealing, opening: bytes) -> Sealed:
        """Make what all helpers accepted a dataset that never changes. The same seal gets the same answer."""
        return self._sealer.seal(origin, name, sealing, opening)

    def abort(self, origin: str, name: str, opening: bytes) -> None:
        """Give up a dataset that is not sealed: its reports may be in another."""
        # Not while it is being sealed: who reads its files would find them gone.
        with self._sealer.alone(), self._shelf.database.write() as connection:
            row = rows.by_name(connection, origin, name, opening, lock=True)
            if row.state != OPEN:
                raise AlreadySealed(f"dataset {name!r} is {row.state} and never changes")
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(this.values(state=ABORTED))
            # Who saw its requests may send them again: they must not open it, and take its ids, anew.
            until = self._shelf.clock.now() + ABORTED_S
            self._shelf.database.insert_new(connection, ABORTED_OPENINGS, [(origin, opening, until)])
        self._shelf.upkeep.finish_aborts()

    def find(self, origin: str, digest: bytes) -> Dataset:
        """A sealed dataset of an origin, as long as no report in it is past its lifetime."""
        with self._lock:
            found = self._found.get((origin, digest))
        found = found or self._load(origin, digest)
        if found.expires <= self._shelf.now():
            raise _over(digest)
        with self._lock:
            self._found[origin, digest] = found
        return found

    def forget(self) -> None:
        """Delete what is past its lifetime, and what no row names. Run at the start, and every hour."""
        self._shelf.ids.prune(self._shelf.clock.now())
        now = self._shelf.now()
        self._shelf.upkeep.expire(now)
        self._shelf.upkeep.finish_aborts()
        self._shelf.upkeep.sweep_all()
        with self._lock:
            self._found = {name: each for name, each in self._found.items() if each.expires > now}

    def close(self) -> None:
        """End the workers."""
        self._intake.close()

    def _load(self, origin: str, digest: bytes) -> SealedDataset:
        query = select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.digest == digest)
        with self._shelf.database.read() as connection:
            row = connection.execute(query).one_or_none()
            lost = select(LOST.c.digest).where(LOST.c.origin == origin, LOST.c.digest == digest)
            is_lost = row is None and connection.scalar(lost) is not None
        if is_lost:
            raise DatasetLost(f"dataset {digest.hex()} was sealed here, and lost with this helper's disk")
        if row is None:
            raise UnknownDataset(f"{origin} has no sealed dataset {digest.hex()} here")
        if row.state == EXPIRED:
            raise _over(digest)
        document, purpose = self._shelf.document(row), Purpose(row.purpose)
        folder = self._shelf.upkeep.folder(row.number) / row.folder
        contents = Contents.model_validate_json(row.contents)
        return SealedDataset(digest, document, purpose, row.expires, folder, contents)

    def _new(self, document: Document, name: str, purpose: Purpose, opening: bytes) -> dict[str, object]:
        return {
            "origin": document.origin,
            "name": name,
            "opening": opening,
            "purpose": purpose.value,
            "parameters": document.digest,
            "document": document.encode(),
            "state": OPEN,
            "expires": self._shelf.clock.now() + document.report_lifetime_s,
        }


def _over(digest: bytes) -> Expired:
    return Expired(f"dataset {digest.hex()} holds a report that is past its lifetime: it is gone")
