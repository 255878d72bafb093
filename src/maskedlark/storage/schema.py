"""Tables are created once and carry a version: a database of another version is refused, not guessed at."""

from sqlalchemy import Column, Integer, MetaData, String, Table, delete, insert, select

from maskedlark.storage import disk
from maskedlark.storage.engine import Database, file_of
from maskedlark.storage.errors import UnknownSchema

_VERSIONS = Table(
    "maskedlark_schema",
    MetaData(),
    Column("name", String(64), primary_key=True),
    Column("version", Integer, nullable=False),
)


def prepare(database: Database, name: str, version: int, tables: MetaData) -> None:
    """Create the missing tables of this name. Run by a party at its start."""
    # One exclusive transaction: two processes starting at once, or one dying here, leave all or nothing.
    with database.beginning(), database.write() as connection:
        database.alone(connection, "schema")
        _VERSIONS.create(connection, checkfirst=True)
        known = connection.scalar(select(_VERSIONS.c.version).where(_VERSIONS.c.name == name))
        if known is None:
            # Tables without a version are of the first one, which did not record it.
            tables.create_all(connection, checkfirst=True)
            connection.execute(insert(_VERSIONS).values(name=name, version=version))
        elif known != version:
            raise UnknownSchema(
                f"the {name} in this database have version {known}, this package knows {version}: "
                "use the version that made it, or put back a backup of this one and recover"
            )


def check(database: Database) -> None:
    """Return if the database, once prepared, durably stores what is written now; raise if not."""
    if (file := file_of(database.engine.url)) is not None:
        disk.check(file)
    with database.write() as connection:
        connection.execute(insert(_VERSIONS).values(name="", version=0))
        connection.execute(delete(_VERSIONS).where(_VERSIONS.c.name == ""))
