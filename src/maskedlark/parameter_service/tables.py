"""The parameter service's tables: only ever added to, which the database itself sees to."""

from pathlib import Path

from sqlalchemy import DDL, BigInteger, Column, LargeBinary, MetaData, Table, Text, event
from sqlalchemy.engine import URL

from maskedlark.storage.engine import Database, open_database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 1

metadata = MetaData()

documents = Table(
    "documents",
    metadata,
    Column("origin", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("origin_signature", LargeBinary, nullable=False),
    Column("service_signature", LargeBinary, nullable=False),
    Column("published_at", BigInteger, nullable=False),
)

configurations = Table(
    "key_configurations",
    metadata,
    Column("helper", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("message", LargeBinary, nullable=False),
    Column("published_at", BigInteger, nullable=False),
)

_REFUSAL = "what is published never changes"
_SQLITE = """
CREATE TRIGGER IF NOT EXISTS {table}_{deed} BEFORE {deed} ON {table}
BEGIN SELECT RAISE(ABORT, '{refusal}'); END
"""
_POSTGRESQL_REFUSES = f"""
CREATE OR REPLACE FUNCTION maskedlark_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END$$
"""
_POSTGRESQL = """
CREATE OR REPLACE TRIGGER {table}_{deed} BEFORE {deed} ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION maskedlark_refuse()
"""


def open_tables(where: Path | str) -> Database:
    """The database in this file or at this URL, with our tables. Run by the service at its start."""
    by_url = isinstance(where, str) and "://" in where
    database = open_database(str(where) if by_url else URL.create("sqlite", database=str(where)))
    try:
        prepare(database, "parameters", SCHEMA_VERSION, metadata)
    except BaseException:
        database.close()
        raise
    return database


def _forbid_changes() -> None:
    """Once the tables are made, nobody changes a row: no mistake of ours, and no operator by hand."""
    _then(_POSTGRESQL_REFUSES, "postgresql")
    for table in metadata.tables:
        for deed in ("UPDATE", "DELETE"):
            _then(_SQLITE.format(table=table, deed=deed, refusal=_REFUSAL), "sqlite")
            _then(_POSTGRESQL.format(table=table, deed=deed), "postgresql")
        _then(_POSTGRESQL.format(table=table, deed="TRUNCATE"), "postgresql")


def _then(statement: str, dialect: str) -> None:
    event.listen(metadata, "after_create", DDL(statement).execute_if(dialect=dialect))  # type: ignore[no-untyped-call]


_forbid_changes()
