"""An open database: transactions and waits. `sqlite` and `postgresql` implement it; one suite tests both."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, UpdateBase, select
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase

BUSY_TIMEOUT_S = 30
"""How long a transaction waits for an earlier one."""
_LOG = logging.getLogger(__name__)


class Database(ABC):
    """An open database. Threads may share it; every transaction has its own connection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._beginning = False

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: durable when the block ends, rolled back if it raises.

        It must lock whatever it reads to decide by: rows with `select(...).with_for_update()`, or everything
        with `alone`. SQLite has one writer at a time and needs neither.
        """
        with self._named(), self._writing() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only transaction: it sees one state of the database and waits for no writer."""
        with self._named(), self._reading() as connection:
            yield connection

    def change(self, statement: UpdateBase) -> int:
        """Execute one statement in its own transaction; returns the number of rows changed, durably."""
        with self.write() as connection:
            return connection.execute(statement).rowcount

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        """All rows that a query finds, in its own transaction."""
        with self.read() as connection:
            return connection.execute(query).all()

    @abstractmethod
    def insert_new(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows, skipping those whose primary key exists; returns how many were inserted.

        Values are in column order. Give the rows in key order: two transactions that insert the same keys in
        different orders could wait for each other.
        """

    @abstractmethod
    def alone(self, connection: Connection, name: str) -> None:
        """Wait until no other writing transaction holds this name, and hold it until this one ends."""

    @abstractmethod
    def scrub(self) -> None:
        """Overwrite what deleted rows left in the database's files, as far as that can be done now."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until every write that began earlier has ended, so that later reads see what it stored."""

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """While a party starts: an error that no retry would fix is raised with a one-line explanation."""
        self._beginning = True
        try:
            yield
        except ProgrammingError as error:
            raise UnsupportedDatabase(f"the database refuses: {_line(error)}") from None
        except StorageUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, DBAPIError) and self.is_refusal(str(cause.orig)):
                raise UnsupportedDatabase(f"the database refuses: {_line(cause)}") from None
            raise
        finally:
            self._beginning = False

    @abstractmethod
    def is_refusal(self, words: str) -> bool:
        """Whether an error's text means that the database refuses us, rather than being unavailable."""

    def check(self) -> None:
        """Return if the database answers; raise if not."""
        self.rows(select(1))

    def disk(self) -> tuple[int, int, int] | None:
        """Bytes that it could use in all, in use, and left; None if they are on a server's disk."""
        return None

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]:
        """Its own transaction, which commits when the block ends."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """Its own transaction, which sees one state."""

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise one error of ours where the database fails; a wrong statement is a bug and passes through."""
        try:
            yield
        except (IntegrityError, ProgrammingError):
            raise
        except DBAPIError as error:
            # For the operator only: clients see our own message. `beginning` reports refusals at the start.
            if not (self._beginning and self.is_refusal(str(error.orig))):
                _LOG.warning("the database cannot answer: %s", _words(error))
            raise StorageUnavailable("the database cannot answer; try again later") from error
        except PoolTimeout as error:
            raise StorageUnavailable("all connections to the database are busy; try again later") from error


def _words(error: DBAPIError) -> str:
    """The database's own message; for errors about a value only the class, because messages quote values."""
    return _line(error) if isinstance(error, OperationalError) else type(error).__name__


def _line(error: DBAPIError) -> str:
    """The database's message, without the hosts that were tried and without the statement."""
    words = str(error.orig).partition("FATAL:")
    return (words[2] or words[0]).strip().partition("\n")[0]
