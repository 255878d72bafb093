"""PostgreSQL through psycopg: many writers at a time, each of which locks what it decides by."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, Table, create_engine, event, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

from maskedlark.storage import database
from maskedlark.storage.database import Database
from maskedlark.storage.errors import UnsupportedDatabase

CONNECT_TIMEOUT_S = 10
FEW = 32
"""Up to this many rows COPY does not pay: it fails where a key exists, and the server logs the failure."""
_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_DRIVERS = ("postgresql", "postgresql+psycopg")
_PASSES = ("starting up", "shutting down", "recovery", "too many", "connection slots", "terminating")
"""Words in the messages of a server that refuses only for now."""
_VALUES = ("22", "23")
"""SQLSTATE classes whose messages quote values: bad data and broken constraints."""


def open_postgresql(url: URL) -> Database:
    """A database of a server. The database must exist; missing tables are created."""
    if url.drivername not in _DRIVERS:
        raise UnsupportedDatabase(f"no {url.drivername}: here; begin the URL with postgresql:")
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,  # notice a restarted server before it spoils a transaction
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        )
    except ImportError:
        raise UnsupportedDatabase("PostgreSQL needs psycopg: pip install 'maskedlark[postgresql]'") from None
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "handle_error", _hide_values)
    return PostgreSQL(engine)


class PostgreSQL(Database):
    """A database of a PostgreSQL server, which other processes and machines may use at the same time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def insert_new(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
        """Many rows by COPY, which is fastest but all or nothing; a few rows, or existing keys, by INSERT."""
        if len(rows) > FEW:
            try:
                with connection.begin_nested():
                    _copy(connection, table, rows)
            except IntegrityError:
                pass
            else:
                return len(rows)
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        return connection.exec_driver_sql(_statements(table)[2], columns).rowcount if rows else 0

    def alone(self, connection: Connection, name: str) -> None:
        """Take a server lock that lasts as long as the transaction."""
        connection.execute(select(func.pg_advisory_xact_lock(_lock(name))))

    def scrub(self) -> None:
        """A no-op: no statement overwrites what the server keeps of deleted rows."""

    def settle(self) -> None:
        """Every writer shares a lock; taking it exclusively waits for all of them."""
        with self._named(), self.engine.begin() as connection:
            self.alone(connection, "writers")

    def is_refusal(self, words: str) -> bool:
        """Whether the server answered and refused the user, the database or an option."""
        return "FATAL:" in words and not any(each in words for each in _PASSES)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock_shared(_lock("writers"))))
            yield connection

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._reader.begin()


def _set_up(connection: Any, _record: object) -> None:  # noqa: ANN401
    """Commits are on disk before they return, and no wait is endless."""
    from psycopg.types.string import BytesBinaryDumper  # noqa: PLC0415 - psycopg is installed where it is used

    if connection.execute("SHOW fsync").fetchone() != ("on",):
        connection.close()
        raise UnsupportedDatabase("this server is not durable: set fsync = on in its configuration")
    (mode,) = connection.execute("SHOW synchronous_commit").fetchone()
    if mode not in ("on", "remote_apply"):  # remote_apply waits for even more than on does.
        connection.execute("SET synchronous_commit = on")
    connection.execute(f"SET lock_timeout = '{database.BUSY_TIMEOUT_S}s'")
    connection.commit()
    # COPY uses the dumper registered last for a type, which for bytes would be a slow one.
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)


def _copy(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    driver = connection.dialect.loaded_dbapi
    try:
        cursor: Any = connection.connection.cursor()
        into, types, _ = _statements(table)
        with cursor, cursor.copy(into) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
    except driver.Error as error:
        # SQLAlchemy knows no COPY, so its error handling for its own statements is repeated here.
        _hide(error)
        raise DBAPIError.instance(
            None, None, error, driver.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


@lru_cache
def _statements(table: Table) -> tuple[str, list[str], str]:
    """COPY into a table, its columns' types without lengths, and the INSERT of new rows."""
    name = _DIALECT.identifier_preparer.format_table(table)
    types = [column.type.compile(dialect=_DIALECT).lower().partition("(")[0] for column in table.columns]
    columns = ", ".join(f"%s::{kind}[]" for kind in types)
    insert = f"INSERT INTO {name} SELECT * FROM unnest({columns}) ON CONFLICT DO NOTHING"  # noqa: S608
    return f"COPY {name} FROM STDIN (FORMAT BINARY)", types, insert


def _lock(name: str) -> int:
    """The number of a named lock, distinct from any other use of the server's locks."""
    digest = hashlib.sha256(b"maskedlark " + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _hide_values(context: ExceptionContext) -> None:
    if context.sqlalchemy_exception is not None and _hide(context.original_exception):
        context.sqlalchemy_exception.args = context.original_exception.args


def _hide(error: BaseException) -> bool:
    """SQLAlchemy hides parameters, but the server quotes them: replace its message by the error's name."""
    if (getattr(error, "sqlstate", None) or "")[:2] not in _VALUES:
        return False
    error.args = (f"{type(error).__name__}: constraint {error.diag.constraint_name}",)  # type: ignore[attr-defined]
    return True
