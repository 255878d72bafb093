"""The ids of all reports in datasets: a report is in at most one. Run by a helper.

Rows of chunks hold them durably (see `tables`); here they are in sorted runs, for fast batch lookups. A
claimer locks the one row of `ids_mark`, and first reads what others claimed since, so that processes sharing
a database agree. Each id takes sixteen bytes. Freed ids stay in their runs, and in runs of their own, until
they are half of all.
"""

import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Delete, Update, func, select, update

from maskedlark.core.sharing import ByteRows
from maskedlark.helper.id_runs import IdRuns, names
from maskedlark.helper.tables import CHUNKS, FLOOR, MARK, SCHEMA_VERSION, TABLES, ids_in
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

FREED = 64
"""Chunks whose ids are freed in one transaction."""
_ONLY = 1


class IdCursor(NamedTuple):
    """The number of claims, how often ids were freed, and the time up to which ids may be pruned."""

    claims: int
    freed: int
    watermark: int


class Ids:
    """All claimed ids. Threads may share it."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._lock = threading.Lock()
        self._claimed, self._gone = IdRuns(folder), IdRuns(folder)
        self._claims, self._freed = 0, -1
        prepare(database, "datasets", SCHEMA_VERSION, TABLES)
        with database.write() as connection:
            database.insert_new(connection, MARK, [(_ONLY, 0, 0, 0)])

    def watermark(self) -> int:
        """The latest time at which ids were pruned: what was too old then is refused for ever."""
        return int(self._database.rows(select(MARK.c.watermark))[0][0])

    def floor(self, connection: Connection) -> int:
        """The hour up to which ids may have been lost: its reports and earlier ones are refused. Often -1."""
        return int(connection.scalars(select(func.coalesce(func.max(FLOOR.c.hour), -1))).one())

    def raise_floor(self, connection: Connection, hour: int) -> None:
        """Refuse from now on every report that may have been in a lost dataset. Run by a recovery."""
        self._database.insert_new(connection, FLOOR, [(hour,)])

    def lock(self, connection: Connection) -> IdCursor:
        """Lock the one row until the transaction ends: nobody else claims, frees or prunes."""
        row = connection.execute(select(MARK).with_for_update()).one()
        return IdCursor(row.claims, row.freed, row.watermark)

    def are_claimed(self, connection: Connection, cursor: IdCursor, ids: ByteRows) -> NDArray[np.bool_]:
        """Which of these are claimed, or repeat an earlier one. Under the lock."""
        wanted = names(ids)
        repeated = np.ones(len(wanted), np.bool_)
        repeated[np.unique(wanted, return_index=True)[1]] = False
        with self._lock:
            self._refresh(connection, cursor)
            return repeated | self._claimed.among(wanted) & ~self._gone.among(wanted)

    def claim(self, connection: Connection, cursor: IdCursor) -> int:
        """The number of a new claim. The chunk row with this number holds the ids. Under the lock."""
        connection.execute(update(MARK).values(claims=cursor.claims + 1))
        return cursor.claims + 1

    def claimed(self, cursor: IdCursor, ids: ByteRows) -> None:
        """Report that a claim at that cursor is durable. Unreported claims are read when needed."""
        with self._lock:
            # Not if ids were freed since: these may be among them.
            if (cursor.claims, cursor.freed) == (self._claims, self._freed):
                self._add(ids)
                self._claims += 1

    def free(self, connection: Connection, cursor: IdCursor, ids: ByteRows) -> int:
        """Count that rows lost ids, if they did. Under the lock; call `freed` afterwards."""
        if not len(ids):
            return cursor.freed
        connection.execute(update(MARK).values(freed=cursor.freed + 1))
        return cursor.freed + 1

    def freed(self, freed: int, ids: ByteRows) -> None:
        """Report which ids were freed, once that is durable."""
        with self._lock:
            if len(ids) and freed == self._freed + 1:
                self._gone.add(names(ids))
                self._freed = freed
                if 2 * len(self._gone) > len(self._claimed):
                    # Rewrite the runs without freed ids. Rare: it takes time proportional to all ids.
                    self._claimed.remove(self._gone)
                    self._gone = IdRuns(self._folder)

    def prune(self, now: int) -> None:
        """Forget ids of expired reports, once all of their chunk have expired. By a confirmed clock."""
        with self._database.write() as connection:
            moment = max(now, self.lock(connection).watermark)
            # Before ids are deleted: a clock that is set back must not revive one of them.
            connection.execute(update(MARK).values(watermark=moment))
        past = CHUNKS.c.expires <= moment, CHUNKS.c.ids.is_not(None)
        self.free_chunks(update(CHUNKS).values(ids=None), *past)

    def free_chunks(self, change: Update | Delete, *which: ColumnElement[bool]) -> None:
        """Free the ids of chunks by a change that removes them, some at a time."""
        while self._free_some(change, *which):
            pass

    def _free_some(self, change: Update | Delete, *which: ColumnElement[bool]) -> int:
        """Returns the number of chunks freed."""
        some = select(CHUNKS.c.claim, CHUNKS.c.ids).where(*which).limit(FREED)
        with self._database.write() as connection:
            cursor = self.lock(connection)
            rows = connection.execute(some).all()
            connection.execute(change.where(CHUNKS.c.claim.in_([row.claim for row in rows])))
            gone = ids_in(*(row.ids for row in rows))
            freed = self.free(connection, cursor, gone)
        self.freed(freed, gone)
        return len(rows)

    def _refresh(self, connection: Connection, cursor: IdCursor) -> None:
        """Read what was claimed since; everything, if some was freed without a report to us."""
        if self._freed != cursor.freed:
            self._claimed, self._gone = IdRuns(self._folder), IdRuns(self._folder)
            self._claims, self._freed = 0, cursor.freed
        if self._claims < cursor.claims:
            since = select(CHUNKS.c.ids).where(CHUNKS.c.claim > self._claims, CHUNKS.c.ids.is_not(None))
            in_pieces = since.order_by(CHUNKS.c.claim).execution_options(yield_per=64)
            for ids in connection.scalars(in_pieces):
                self._add(ids_in(ids))
            self._claims = cursor.claims

    def _add(self, ids: ByteRows) -> None:
        """Add what was claimed, perhaps after it was freed."""
        new = IdRuns(self._folder)
        new.add(names(ids))
        self._gone.remove(new)
        self._claimed.add(names(ids))
