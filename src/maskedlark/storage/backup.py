"""A copy of a database at one moment, while others write to it. Run by an operator."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from maskedlark.storage.database import Database
from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase
from maskedlark.storage.sqlite import SQLite


def copy(database: Database, path: Path) -> None:
    """Write a copy of one state to a new private file. Writers do not wait. Call `finish` afterwards."""
    if not isinstance(database, SQLite):
        raise UnsupportedDatabase("this database is a server's: make its copy with pg_dump")
    path.touch(0o600, exist_ok=False)
    with closing(database.engine.raw_connection()) as reading:
        driver = reading.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        with _named(), closing(sqlite3.connect(path)) as target:
            # All pages at once, from one state: a copy page by page starts over whenever somebody writes.
            driver.backup(target, pages=-1)


def finish(path: Path) -> None:
    """Make the copy one whole, durable file: a copy of this file must not lack a journal."""
    with _named(), closing(sqlite3.connect(path)) as target:
        target.execute("PRAGMA journal_mode = DELETE")
        if target.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise StorageUnavailable("the copy of the database is damaged, so the database may be")
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageUnavailable(f"the database cannot be copied now: {error}") from error
