"""An open database as its callers see it: transactions that read, transactions that write, and waiting.

`sqlite.py` and `postgresql.py` say how each kind does it; one suite of tests holds both to it.
"""

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
"""How long a transaction waits for another before it."""
_LOG = logging.getLogger(__name__)


class Database(ABC):
    """An open database. Any thread may use it; every transaction has a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._beginning = False

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: durable when the block ends, and gone if it raises.

        What it decides by what it read, it must have locked: rows with `select(...).with_for_update()`, or
        all at once with `alone`. SQLite has one writer at a time and needs neither.
        """
        with self._named(), self._writing() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads, sees one state of the database, and waits for no writer."""
        with self._named(), self._reading() as connection:
            yield connection

    def change(self, statement: UpdateBase) -> int:
        """One statement in a transaction of its own: how many rows it has changed, durably."""
        with self.write() as connection:
            return connection.execute(statement).rowcount

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        """All that a query finds, in a transaction of its own."""
        with self.read() as connection:
            return connection.execute(query).all()

    @abstractmethod
    def insert_new(self, connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows, and leave out those whose primary key is taken; returns how many were inserted.

        Values are in the order of the columns. Give the rows in the order of their keys: two transactions
        that take the same keys in different orders could wait for each other.
        """

    @abstractmethod
    def alone(self, connection: Connection, name: str) -> None:
        """Wait until no other writing transaction has this name, and keep it until this one ends."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until every write that began before has ended: what is read then holds what they stored."""

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """While a party starts: what no second try would mend says what it is, in one line."""
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
        """Whether an error's words mean that the database will not have us, not that it is away."""

    def check(self) -> None:
        """Return if the database answers; raise if not."""
        self.rows(select(1))

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Connection]:
        """A transaction of its own that commits when the block ends."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """A transaction of its own that sees one state."""

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A database that fails is one error of ours; a statement that is wrong is our own mistake."""
        try:
            yield
        except (IntegrityError, ProgrammingError):
            raise
        except DBAPIError as error:
            # For the operator alone: strangers see the message of ours. A refusal at the start says so.
            if not (self._beginning and self.is_refusal(str(error.orig))):
                _LOG.warning("the database cannot answer: %s", _words(error))
            raise StorageUnavailable("the database cannot answer; try again later") from error
        except PoolTimeout as error:
            raise StorageUnavailable("all connections to the database are busy; try again later") from error


def _words(error: DBAPIError) -> str:
    """What the database says of itself; of what is wrong with a value the class alone, lest it is quoted."""
    return _line(error) if isinstance(error, OperationalError) else type(error).__name__


def _line(error: DBAPIError) -> str:
    """What the database says, without the hosts that were tried and without the statement."""
    words = str(error.orig).partition("FATAL:")
    return (words[2] or words[0]).strip().partition("\n")[0]
