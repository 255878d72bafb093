"""A database by URL: SQLite or PostgreSQL; another is a line in `_OPENERS`, and its callers do not change.

Callers see transactions alone: `write()` and `read()`. Parameters of a statement are hidden from errors and
logs, whatever they hold.
"""

from collections.abc import Callable

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from maskedlark.storage.database import Database
from maskedlark.storage.errors import UnsupportedDatabase
from maskedlark.storage.postgresql import open_postgresql
from maskedlark.storage.sqlite import open_sqlite

__all__ = ["Database", "open_database"]

_OPENERS: dict[str, Callable[[URL], Database]] = {"sqlite": open_sqlite, "postgresql": open_postgresql}


def open_database(url: str | URL) -> Database:
    """Open the database that a URL names, and make it durable. Run by a party at its start."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UnsupportedDatabase(
            "not the URL of a database; give one such as sqlite:///reports.db"
        ) from None
    opener = _OPENERS.get(parsed.get_backend_name())
    if opener is None:
        known = " or ".join(f"{name}:" for name in _OPENERS)
        raise UnsupportedDatabase(
            f"no {parsed.get_backend_name()}: here; give a URL that begins with {known}"
        )
    database = opener(parsed)
    try:
        database.check()
    except BaseException:
        database.close()
        raise
    return database
