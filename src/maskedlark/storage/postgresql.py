"""PostgreSQL through psycopg: many writers at a time, who lock what they decide by."""

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
"""Rows for which COPY does not pay: where a key is taken it fails first, and the server's log says so."""
_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_DRIVERS = ("postgresql", "postgresql+psycopg")
_PASSES = ("starting up", "shutting down", "recovery", "too many", "connection slots", "terminating")
"""Words of a server that refuses now, and will not later."""
_VALUES = ("22", "23")
"""Classes of SQLSTATE whose messages quote values: bad data, and broken constraints."""


def open_postgresql(url: URL) -> Database:
    """The database of a server. The server must have it already; our tables are made where they miss."""
    if url.drivername not in _DRIVERS:
        raise UnsupportedDatabase(f"no {url.drivername}: here; begin the URL with postgresql:")
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,  # a server that was away is noticed before it spoils a transaction
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
        """Many by COPY, the fastest way in, but all or nothing; a few, or where a key is taken, by INSERT."""
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
        """A lock of the server's that lasts as long as the transaction."""
        connection.execute(select(func.pg_advisory_xact_lock(_lock(name))))

    def settle(self) -> None:
        """Every writer shares a lock; who wants it alone waits for those that have it."""
        with self._named(), self.engine.begin() as connection:
            self.alone(connection, "writers")

    def is_refusal(self, words: str) -> bool:
        """It answered, and will have neither this user, database or option."""
        return "FATAL:" in words and not any(each in words for each in _PASSES)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock_shared(_lock("writers"))))
            yield connection

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._reader.begin()


def _set_up(connection: Any, _record: object) -> None:  # noqa: ANN401
    """What is committed is on the disk before commit returns; nobody waits for ever."""
    from psycopg.types.string import BytesBinaryDumper  # noqa: PLC0415 - psycopg is installed where it is used

    if connection.execute("SHOW fsync").fetchone() != ("on",):
        connection.close()
        raise UnsupportedDatabase("this server is not durable: set fsync = on in its configuration")
    (mode,) = connection.execute("SHOW synchronous_commit").fetchone()
    if mode not in ("on", "remote_apply"):  # The second waits for more than the first.
        connection.execute("SET synchronous_commit = on")
    connection.execute(f"SET lock_timeout = '{database.BUSY_TIMEOUT_S}s'")
    connection.commit()
    # COPY takes what was registered last for a type: for bytes, else, a slow one.
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
        # SQLAlchemy has no COPY, so what it does to the errors of its own statements is done here.
        _hide(error)
        raise DBAPIError.instance(
            None, None, error, driver.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


@lru_cache
def _statements(table: Table) -> tuple[str, list[str], str]:
    """COPY into a table with its columns' types, without their lengths; and INSERT of what is new."""
    name = _DIALECT.identifier_preparer.format_table(table)
    types = [column.type.compile(dialect=_DIALECT).lower().partition("(")[0] for column in table.columns]
    columns = ", ".join(f"%s::{kind}[]" for kind in types)
    insert = f"INSERT INTO {name} SELECT * FROM unnest({columns}) ON CONFLICT DO NOTHING"  # noqa: S608
    return f"COPY {name} FROM STDIN (FORMAT BINARY)", types, insert


def _lock(name: str) -> int:
    """The number of a lock: ours and of this name, whatever else the server's locks are used for."""
    digest = hashlib.sha256(b"maskedlark " + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _hide_values(context: ExceptionContext) -> None:
    if context.sqlalchemy_exception is not None and _hide(context.original_exception):
        context.sqlalchemy_exception.args = context.original_exception.args


def _hide(error: BaseException) -> bool:
    """SQLAlchemy hides parameters, but the server quotes them: the fault's name takes its words' place."""
    if (getattr(error, "sqlstate", None) or "")[:2] not in _VALUES:
        return False
    error.args = (f"{type(error).__name__}: constraint {error.diag.constraint_name}",)  # type: ignore[attr-defined]
    return True
