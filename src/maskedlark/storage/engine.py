"""Opens a database by URL: SQLite or PostgreSQL. Another kind would be one more case in `open_database`.

Callers see only transactions: `write()` and `read()`. Errors and logs never show a statement's parameters.
"""

import logging
import time
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from maskedlark.storage.database import Database
from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase

__all__ = ["Database", "beside", "file_of", "is_server", "open_database", "parse"]

AGAIN_S = 2.0
_log = logging.getLogger(__name__)


def parse(url: str | URL) -> URL:
    """The parts of a URL. Errors do not quote a bad one: it may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise UnsupportedDatabase(
            "not the URL of a database; give one such as sqlite:///reports.db"
        ) from None
    if "@" in (parsed.host or ""):
        raise UnsupportedDatabase("a URL with two @: in a password, write it as %40")
    return parsed


def file_of(url: str | URL) -> Path | None:
    """The file that an SQLite URL names; None for any other URL."""
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def is_server(url: str | URL) -> bool:
    """Whether several processes may keep things in it at the same time: a file has one at a time here."""
    return parse(url).get_backend_name() != "sqlite"


def beside(url: str, folder: Path) -> str:
    """The same URL, with an SQLite file taken relative to this folder, as all paths in configurations are."""
    file = file_of(url)
    if file is None:
        return url
    return parse(url).set(database=str(folder / file)).render_as_string(hide_password=False)


def open_database(url: str | URL, make: bool = True, wait: bool = False) -> Database:
    """Open a URL's database, durably; without `make`, it must exist. A service waits for a server."""
    parsed = parse(url)
    match parsed.get_backend_name():
        case "sqlite":
            from maskedlark.storage.sqlite import open_sqlite  # noqa: PLC0415 - one is used, and both are slow

            database = open_sqlite(parsed, make)
        case "postgresql":
            from maskedlark.storage.postgresql import open_postgresql  # noqa: PLC0415

            database = open_postgresql(parsed)  # The server has the database or not: we never create it.
        case other:
            raise UnsupportedDatabase(f"no {other}: here; give a URL that begins with sqlite: or postgresql:")
    try:
        while True:
            try:
                with database.beginning():
                    database.check()
            except StorageUnavailable:
                if not (wait and is_server(url)):
                    raise
                _log.warning("waiting for the database: it is asked again every %g seconds", AGAIN_S)
                time.sleep(AGAIN_S)
            else:
                return database
    except BaseException:
        database.close()
        raise
