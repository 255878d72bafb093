"""The questions that the ad server has asked: durable before they leave, so that none is charged twice."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    delete,
    select,
    update,
)

from maskedlark.adserver.dataset_store import MOST_HELPER_NAME
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 1
_TABLES = MetaData()
_REQUESTS = Table(
    "requests",
    _TABLES,
    Column("id", String(32), primary_key=True),
    Column("asked", BigInteger, nullable=False),
    Column("wish", LargeBinary, nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
)
_ANSWERS = Table(
    "request_answers",
    _TABLES,
    Column("request", ForeignKey(_REQUESTS.c.id), primary_key=True),
    Column("helper", String(MOST_HELPER_NAME), primary_key=True),
    Column("answer", LargeBinary, nullable=False),
)


class Course(StrEnum):
    """What became of a question."""

    PENDING = "pending"
    """Some helper may have charged it, and not all answers are here."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """By every helper: nothing was charged."""
    FORGOTTEN = "forgotten"
    """Let go of by its askers, before all answers were here: what was charged stays charged."""


@dataclass(frozen=True)
class Kept:
    """A question as it was asked."""

    id: str
    asked: int
    """When, in seconds since 1970."""
    wish: bytes
    """The digest of what the caller wanted, then that of the datasets: the same wish finds its question."""
    parameters: bytes
    body: bytes
    """The very bytes that every helper gets, however often."""
    state: Course


class Requests:
    """The table of questions in an open database. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        prepare(database, "requests", SCHEMA_VERSION, _TABLES)
        self._database = database

    def find(self, wish: bytes) -> Kept | None:
        """The pending question of the same wish; none if there is none."""
        with self._database.read() as connection:
            return _pending(connection, wish)

    def add(self, made: Kept) -> Kept:
        """Keep a question, durable when this returns; or find what another has added meanwhile."""
        with self._database.write() as connection:
            self._database.alone(connection, "requests")
            if (before := _pending(connection, made.wish)) is not None:
                return before
            row = (made.id, made.asked, made.wish, made.parameters, made.body, made.state.value)
            self._database.insert_new(connection, _REQUESTS, [row])
        return made

    def get(self, name: str) -> Kept | None:
        """The question of this id; none if there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(_REQUESTS).where(_REQUESTS.c.id == name)).one_or_none()
        return None if row is None else _kept(row)

    def pending(self) -> list[Kept]:
        """Questions that may be charged and are not answered, the oldest first."""
        query = select(_REQUESTS).where(_REQUESTS.c.state == Course.PENDING.value)
        with self._database.read() as connection:
            return [_kept(row) for row in connection.execute(query.order_by(_REQUESTS.c.asked))]

    def reopen(self, name: str) -> None:
        """It is asked again: until it is answered, some helper may have charged it."""
        change = update(_REQUESTS).where(_REQUESTS.c.id == name, _REQUESTS.c.state != Course.ANSWERED.value)
        with self._database.write() as connection:
            connection.execute(change.values(state=Course.PENDING.value))

    def close(self, name: str, state: Course) -> None:
        """Nothing is left to do for a question."""
        with self._database.write() as connection:
            connection.execute(update(_REQUESTS).where(_REQUESTS.c.id == name).values(state=state.value))

    def answer(self, name: str, helper: str, data: bytes) -> None:
        """Keep a helper's answer, whose receipt was verified."""
        with self._database.write() as connection:
            self._database.insert_new(connection, _ANSWERS, [(name, helper, data)])

    def drop_answers(self, name: str) -> None:
        """Let go of a question's answers: helpers give them again."""
        with self._database.write() as connection:
            connection.execute(delete(_ANSWERS).where(_ANSWERS.c.request == name))

    def answers(self, name: str) -> dict[str, bytes]:
        """What is kept of the answers, by helper."""
        query = select(_ANSWERS).where(_ANSWERS.c.request == name)
        with self._database.read() as connection:
            return {row.helper: bytes(row.answer) for row in connection.execute(query)}


def _pending(connection: Connection, wish: bytes) -> Kept | None:
    same = (_REQUESTS.c.wish == wish) & (_REQUESTS.c.state == Course.PENDING.value)
    row = connection.execute(select(_REQUESTS).where(same).limit(1)).one_or_none()
    return None if row is None else _kept(row)


def _kept(row: Row[tuple[object, ...]]) -> Kept:
    return Kept(row.id, row.asked, bytes(row.wish), bytes(row.parameters), bytes(row.body), Course(row.state))
