"""The parameter service's tables, and its SQLite engine: what it has answered survives a power cut."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
)

BUSY_MS = 30_000

metadata = MetaData()

documents = Table(
    "documents",
    metadata,
    Column("origin", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("origin_signature", LargeBinary, nullable=False),
    Column("service_signature", LargeBinary, nullable=False),
    Column("published_at", Integer, nullable=False),
)

configurations = Table(
    "key_configurations",
    metadata,
    Column("helper", Text, primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("message", LargeBinary, nullable=False),
    Column("published_at", Integer, nullable=False),
)

_IMMUTABLE = """
CREATE TRIGGER IF NOT EXISTS {table}_{deed} BEFORE {deed} ON {table}
BEGIN SELECT RAISE(ABORT, 'what is published never changes'); END
"""


def open_engine(path: Path) -> Engine:
    """The database at this path, made if there is none."""
    engine = create_engine(f"sqlite:///{path}", hide_parameters=True)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        metadata.create_all(connection)
        for table in metadata.tables:
            for deed in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(_IMMUTABLE.format(table=table, deed=deed))
    return engine


def _prepare(connection: sqlite3.Connection, _: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own record
    connection.isolation_level = None  # Transactions begin where we say so, below.
    for pragma in (f"busy_timeout={BUSY_MS}", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    """A writer takes the lock before it reads, so that what it decides by cannot change under it."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
