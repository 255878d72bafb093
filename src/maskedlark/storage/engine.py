"""A database by URL: SQLite now; another is a line in `_OPENERS`, and its callers do not change.

Callers see transactions alone: `write()` and `read()`. Parameters of a statement are hidden from errors and
logs, whatever they hold.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase

BUSY_TIMEOUT_S = 30
"""How long a transaction waits for the writer before it."""
_WRITES = "maskedlark_writes"
_LOG = logging.getLogger(__name__)

InsertNew = Callable[[Connection, Table, Sequence[tuple[Any, ...]]], int]
"""Insert rows, their values in the order of the columns, and leave out those whose primary key is taken.

Returns how many were inserted. It is the one bulk operation that each database does in its own fastest way.
"""


class Database:
    """An open database. Any thread may use it; every transaction has a connection of its own."""

    def __init__(self, engine: Engine, insert_new: InsertNew, one_writer: bool) -> None:
        self.engine = engine
        self.insert_new = insert_new
        self._writer = threading.Lock() if one_writer else None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: durable when the block ends, and gone if it raises."""
        with _named(), self._turn(), self.engine.connect() as connection:
            connection.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads, and waits for no writer."""
        with _named(), self.engine.connect() as connection, connection.begin():
            yield connection

    def check(self) -> None:
        """Return if the database answers; raise if not."""
        with self.read() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads queue up here: SQLite lets waiting writers sleep and try again, which starves some."""
        if self._writer is None:
            yield
            return
        if not self._writer.acquire(timeout=BUSY_TIMEOUT_S):
            raise StorageUnavailable("other writers keep the database busy; try again later")
        try:
            yield
        finally:
            self._writer.release()


@contextmanager
def _named() -> Iterator[None]:
    """A database that fails is one error of ours; a statement that is wrong is our own mistake, and stays."""
    try:
        yield
    except (IntegrityError, ProgrammingError):
        raise
    except DBAPIError as error:
        # For the operator alone: strangers see the message of ours.
        _LOG.warning("the database cannot answer: %s", error.orig)
        raise StorageUnavailable("the database cannot answer; try again later") from error
    except PoolTimeout as error:
        raise StorageUnavailable("all connections to the database are busy; try again later") from error


def open_database(url: str) -> Database:
    """Open the database that a URL names, and make it durable. Run by a party at its start."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UnsupportedDatabase(
            "not the URL of a database; give one such as sqlite:///reports.db"
        ) from None
    opener = _OPENERS.get(parsed.get_backend_name())
    if opener is None:
        known = ", ".join(f"{name}:" for name in _OPENERS)
        raise UnsupportedDatabase(
            f"no {parsed.get_backend_name()}: here; give a URL that begins with {known}"
        )
    database = opener(parsed)
    database.check()
    return database


def _open_sqlite(url: URL) -> Database:
    if url.database in (None, "", ":memory:"):
        raise UnsupportedDatabase("memory is not durable; name a file, as in sqlite:///reports.db")
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return Database(engine, _insert_new_sqlite, one_writer=True)


def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401
    # Python's driver would begin transactions by itself, late and never for DDL: we begin them.
    connection.isolation_level = None
    # Readers do not wait for the writer; what is committed is on the disk before commit returns.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnsupportedDatabase(f"SQLite keeps its journal as {mode} there; use a local file system")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock at once: one that first reads and then writes could find its view outdated.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _insert_new_sqlite(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
    # Straight to the driver: for rows this small, what SQLAlchemy does to each costs as much as storing it.
    return connection.exec_driver_sql(_insert_sqlite(table), list(rows)).rowcount


@lru_cache
def _insert_sqlite(table: Table) -> str:
    return str(sqlite.insert(table).on_conflict_do_nothing().compile(dialect=sqlite.dialect()))


_OPENERS: dict[str, Callable[[URL], Database]] = {"sqlite": _open_sqlite}
