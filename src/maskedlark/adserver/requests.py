"""The ad server's requests: durable before they are sent, so that none is charged twice."""

from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from maskedlark.adserver.dataset_store import MAX_HELPER_NAME
from maskedlark.adserver.errors import UnknownRequest
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 2
_TABLES = sa.MetaData()
_REQUESTS = sa.Table(
    "requests",
    _TABLES,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("asked", sa.BigInteger, nullable=False),
    sa.Column("wish", sa.LargeBinary, nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
)
_ANSWERS = sa.Table(
    "request_answers",
    _TABLES,
    sa.Column("request", sa.ForeignKey(_REQUESTS.c.id), primary_key=True),
    sa.Column("helper", sa.String(MAX_HELPER_NAME), primary_key=True),
    sa.Column("answer", sa.LargeBinary, nullable=False),
)


class RequestState(StrEnum):
    """What became of a request."""

    PENDING = "pending"
    """Some helper may have charged it, and not all answers are stored."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """The first helper refused it, and no other is asked: nothing was charged."""
    FORGOTTEN = "forgotten"
    """Abandoned before all answers were here: what was charged stays charged."""


_PENDING = sa.select(_REQUESTS).filter_by(state=RequestState.PENDING.value).order_by(_REQUESTS.c.asked)
"""Requests that may be charged and are not answered, the oldest first."""


class StoredRequest(NamedTuple):
    """A row of the table of requests."""

    id: str
    asked: int
    """When, in seconds since 1970."""
    wish: bytes
    """The digest of its `QuerySpec`, by which the same spec finds its request again."""
    parameters: bytes
    body: bytes
    """The exact bytes that every helper gets, however often."""
    state: str


class Requests:
    """The table of requests in an open database. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        prepare(database, "requests", SCHEMA_VERSION, _TABLES)
        self._database = database

    def add(self, made: StoredRequest) -> StoredRequest:
        """Durably store a request, or return the equal one that another process added meanwhile."""
        with self._database.write() as connection:
            self._database.alone(connection, "requests")
            before = connection.execute(_PENDING.where(_REQUESTS.c.wish == made.wish)).first()
            if before is not None:
                return StoredRequest(*before)
            self._database.insert_new(connection, _REQUESTS, [made])
        return made

    def get(self, name: str) -> StoredRequest:
        """The request of this id."""
        for row in self._database.rows(sa.select(_REQUESTS).where(_REQUESTS.c.id == name)):
            return StoredRequest(*row)
        raise UnknownRequest(f"no request {name!r} was asked from this database")

    def pending(self) -> list[StoredRequest]:
        """Requests that may be charged and are not answered, the oldest first."""
        return [StoredRequest(*row) for row in self._database.rows(_PENDING)]

    def mark(self, name: str, state: RequestState) -> None:
        """Set a request's state. An answered one stays answered."""
        open_still = _REQUESTS.c.state != RequestState.ANSWERED.value
        change = sa.update(_REQUESTS).where(_REQUESTS.c.id == name, open_still)
        self._database.change(change.values(state=state.value))

    def answer(self, name: str, helper: str, data: bytes) -> None:
        """Store a helper's answer, whose receipt was verified."""
        with self._database.write() as connection:
            self._database.insert_new(connection, _ANSWERS, [(name, helper, data)])

    def drop_answers(self, name: str) -> None:
        """Delete a request's answers: helpers give them again."""
        self._database.change(sa.delete(_ANSWERS).where(_ANSWERS.c.request == name))

    def answers(self, name: str) -> dict[str, bytes]:
        """The stored answers, by helper."""
        query = sa.select(_ANSWERS.c.helper, _ANSWERS.c.answer).where(_ANSWERS.c.request == name)
        return {row.helper: row.answer for row in self._database.rows(query)}
