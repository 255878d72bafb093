"""The floor: reports that were received before it are being deleted, so no new dataset may reach below it.

One row: where the floor is, and when it was last looked at. Who changes it, and who adds a dataset, holds the
name "datasets" alone: each sees what the other has done.
"""

from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, select, update

from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 1
_TABLES = MetaData()
_FLOOR = Table(
    "reports_floor",
    _TABLES,
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("moment", BigInteger, nullable=False),
    Column("looked", BigInteger, nullable=False),
)


class Floor(NamedTuple):
    """Seconds since 1970."""

    moment: int = 0
    looked: int = 0
    """The greatest moment at which something was deleted."""


def make(database: Database) -> None:
    """Make the table where it is missing. Run by a party at its start."""
    prepare(database, "reports_floor", SCHEMA_VERSION, _TABLES)
    with database.write() as connection:
        database.insert_new(connection, _FLOOR, [(0, 0, 0)])


def read(connection: Connection) -> Floor:
    """Where it is now."""
    row = connection.execute(select(_FLOOR.c.moment, _FLOOR.c.looked)).one()
    return Floor(row.moment, row.looked)


def put(connection: Connection, floor: Floor) -> None:
    """Where it is from now on. It may go down: a clock that was ahead must not hold up datasets."""
    connection.execute(update(_FLOOR).values(moment=floor.moment, looked=floor.looked))
