"""SQLite: a file, one writer at a time, readers that never wait."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from maskedlark.storage import database
from maskedlark.storage.database import Database
from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase, UnusedDatabase

SCRUB_TIMEOUT_MS = 500
"""How long readers, and with them writers, are waited for when the write-ahead log is truncated."""
_REFUSALS = ("readonly", "unable to open", "not a database")


def open_sqlite(url: URL, make: bool = True) -> Database:
    """The database in a file. It is created if missing, unless it must exist."""
    if url.database in (None, "", ":memory:"):
        raise UnsupportedDatabase("memory is not durable; name a file, as in sqlite:///reports.db")
    path = Path(str(url.database))
    if not path.absolute().parent.is_dir():
        raise UnsupportedDatabase(f"there is no folder {path.parent} for {path.name}: make it first")
    if not make and not path.exists():
        raise UnusedDatabase(f"there is no database {path}: check the path")
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": database.BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up)
    return SQLite(engine)


class SQLite(Database):
    """A file. A writing transaction excludes every other, so nothing else needs locking."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._writer = threading.Lock()

    def insert_new(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
        """Straight to the driver: SQLAlchemy's work on each small row costs as much as storing it."""
        return connection.exec_driver_sql(_insert(table), list(rows)).rowcount if rows else 0

    def alone(self, connection: Connection, name: str) -> None:
        """A no-op: every writer is alone."""

    def scrub(self) -> None:
        """Truncate the write-ahead log. While somebody reads, it is left for the next call."""
        with self._named(), self._alone(), self.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {SCRUB_TIMEOUT_MS}")
            try:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
            finally:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * database.BUSY_TIMEOUT_S}")

    def settle(self) -> None:
        """The writer's lock is free once the earlier writes have ended."""
        with self.write():
            pass

    def disk(self) -> tuple[int, int, int]:
        """Pages that deleted rows have left are free."""
        names = "page_size", "page_count", "freelist_count"
        with self.read() as connection:
            size, pages, free = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names)
        left = shutil.disk_usage(Path(str(self.engine.url.database)).absolute().parent).free
        return pages * size + left, (pages - free) * size, free * size + left

    def is_refusal(self, words: str) -> bool:
        """Whether the file is not writable or not a database."""
        return any(each in words for each in _REFUSALS)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._alone(), self.engine.begin() as connection:
            # Take the lock at once: a writer that reads first could find its view outdated.
            _begin(connection, "BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # Threads queue here: SQLite's waiting writers sleep and retry, which starves some of them.
        if not self._writer.acquire(timeout=database.BUSY_TIMEOUT_S):
            raise StorageUnavailable("other writers keep the database busy; try again later")
        try:
            yield
        finally:
            self._writer.release()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            _begin(connection, "BEGIN")
            yield connection


def _set_up(connection: Any, _record: object) -> None:  # noqa: ANN401
    # Python's driver would begin transactions late, and never for DDL: we begin them ourselves.
    connection.isolation_level = None
    # Readers do not wait for the writer; commits are on disk before they return.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnsupportedDatabase(f"SQLite keeps its journal as {mode} there; use a local file system")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Deleted rows are overwritten: seeds are among them.
    connection.execute("PRAGMA secure_delete = ON")


def _begin(connection: Connection, words: str) -> None:
    """Straight to the driver, without an SQLAlchemy event: one would slow every statement."""
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute(words)
    except sqlite3.Error as error:
        raise DBAPIError.instance(
            words, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


@lru_cache
def _insert(table: Table) -> str:
    return str(sqlite.insert(table).on_conflict_do_nothing().compile(dialect=sqlite.dialect()))
