"""A database by URL: SQLite or PostgreSQL; another is a case in `open_database`; callers do not change.

Callers see transactions alone: `write()` and `read()`. Parameters of a statement are hidden from errors and
logs, whatever they hold.
"""

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from maskedlark.storage.database import Database
from maskedlark.storage.errors import UnsupportedDatabase

__all__ = ["Database", "beside", "file_of", "open_database", "parse"]


def parse(url: str | URL) -> URL:
    """The parts of a URL. What is wrong with one is not said: it may hold a password."""
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
    """The file that a URL of SQLite names; none for any other."""
    parsed = parse(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


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
    match parsed.get_backend_name():
        case "sqlite":
            from maskedlark.storage.sqlite import open_sqlite  # noqa: PLC0415 - one is used, and both are slow

            database = open_sqlite(parsed, make)
        case "postgresql":
            from maskedlark.storage.postgresql import open_postgresql  # noqa: PLC0415

            database = open_postgresql(parsed)  # A server has it, or has not.
        case other:
            raise UnsupportedDatabase(f"no {other}: here; give a URL that begins with sqlite: or postgresql:")
    try:
        with database.beginning():
            database.check()
    except BaseException:
        database.close()
        raise
    return database
