"""A database by URL: SQLite or PostgreSQL; another is a line in `_OPENERS`, and its callers do not change.

Callers see transactions alone: `write()` and `read()`. Parameters of a statement are hidden from errors and
logs, whatever they hold.
"""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from maskedlark.storage.database import Database
from maskedlark.storage.errors import UnsupportedDatabase

__all__ = ["Database", "beside", "file_of", "open_database", "parse"]


def _sqlite(url: URL, make: bool) -> Database:
    from maskedlark.storage.sqlite import open_sqlite  # noqa: PLC0415 - one of them is used, and both are slow

    return open_sqlite(url, make)


def _postgresql(url: URL, make: bool) -> Database:  # noqa: ARG001 - a server has it, or has not
    from maskedlark.storage.postgresql import open_postgresql  # noqa: PLC0415

    return open_postgresql(url)


_OPENERS: dict[str, Callable[[URL, bool], Database]] = {"sqlite": _sqlite, "postgresql": _postgresql}


def parse(url: str | URL) -> URL:
    """The parts of a URL. What is wrong with one is not said: it may hold a password."""
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise UnsupportedDatabase(
            "not the URL of a database; give one such as sqlite:///reports.db"
        ) from None
    if "@" in (found.host or ""):
        raise UnsupportedDatabase("a URL with two @: in a password, write it as %40")
    return found


def file_of(url: str | URL) -> Path | None:
    """The file that a URL of SQLite names; none for any other."""
    found = parse(url)
    if found.get_backend_name() != "sqlite" or not found.database or found.database == ":memory:":
        return None
    return Path(found.database)


def beside(url: str, folder: Path) -> str:
    """The same URL, a file of SQLite relative to this folder. For configurations, whose paths all are."""
    file = file_of(url)
    if file is None:
        return url
    return parse(url).set(database=str(folder / file)).render_as_string(hide_password=False)


def open_database(url: str | URL, make: bool = True) -> Database:
    """Open the database that a URL names, and make it durable. Run by a party at its start.

    Without `make`, one that is not there is an error.
    """
    parsed = parse(url)
    opener = _OPENERS.get(parsed.get_backend_name())
    if opener is None:
        known = " or ".join(f"{name}:" for name in _OPENERS)
        raise UnsupportedDatabase(
            f"no {parsed.get_backend_name()}: here; give a URL that begins with {known}"
        )
    database = opener(parsed, make)
    try:
        with database.beginning():
            database.check()
    except BaseException:
        database.close()
        raise
    return database
