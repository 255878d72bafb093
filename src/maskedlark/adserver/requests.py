"""The ad server's requests: durable before they are sent, so that none is charged twice."""

from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from maskedlark.adserver.dataset_store import MAX_HELPER_NAME
from maskedlark.adserver.errors import UnknownRequest
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 4
_TABLES = sa.MetaData()
_REQUESTS = sa.Table(
    "requests",
    _TABLES,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("asked", sa.BigInteger, nullable=False),
    sa.Column("spec_digest", sa.LargeBinary, nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("unsettled", sa.Integer, nullable=False),
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
    """The first helper refused it whenever it was sent, and no other was asked: nothing was charged."""
    FORGOTTEN = "forgotten"
    """Abandoned before all answers were here: what was charged stays charged."""


_PENDING = sa.select(_REQUESTS).filter_by(state=RequestState.PENDING.value).order_by(_REQUESTS.c.asked)
"""Requests that may be charged and are not answered, the oldest first."""


class StoredRequest(NamedTuple):
    """A row of the table of requests."""

    id: str
    asked: int
    """When, in seconds since 1970."""
    spec_digest: bytes
    """The digest of its `QuerySpec`, by which the same spec finds its request again."""
    parameters: bytes
    body: bytes
    """The exact bytes that every helper gets, however often."""
    state: str
    unsettled: int = 0
    """How often it was sent and may have been charged: all sendings but those that the first refused."""


class Requests:
    """The table of requests in an open database. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        prepare(database, "requests", SCHEMA_VERSION, _TABLES)
        self._database = database

    def add(self, made: StoredRequest) -> StoredRequest:
        """Durably store a request, or return the equal one that another process added meanwhile."""
        with self._database.write() as connection:
            self._database.alone(connection, "requests")
            before = connection.execute(_PENDING.where(_REQUESTS.c.spec_digest == made.spec_digest)).first()
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

    def answered(self, spec_digest: bytes) -> StoredRequest | None:
        """The newest request of this spec that was answered."""
        query = sa.select(_REQUESTS).filter_by(spec_digest=spec_digest, state=RequestState.ANSWERED.value)
        rows = self._database.rows(query.order_by(_REQUESTS.c.asked.desc(), _REQUESTS.c.id).limit(1))
        return next((StoredRequest(*row) for row in rows), None)

    def begin(self, name: str) -> None:
        """Durably count a sending, before any helper is asked: from now on somebody may charge it."""
        pending = {"state": RequestState.PENDING.value, "unsettled": _REQUESTS.c.unsettled + 1}
        self._database.change(_open_still(name).values(pending))

    def refuse(self, name: str) -> bool:
        """Settle a sending that the first helper refused. Says whether that refuses the request.

        It does if no other sending is unsettled. One that was answered stays so: it was charged.
        """
        with self._database.write() as connection:
            connection.execute(_open_still(name).values(unsettled=_REQUESTS.c.unsettled - 1))
            # In the same transaction: another process may begin a sending meanwhile.
            none_else = _open_still(name).where(_REQUESTS.c.unsettled == 0)
            return connection.execute(none_else.values(state=RequestState.REFUSED.value)).rowcount == 1

    def mark(self, name: str, state: RequestState) -> None:
        """Set a request's state. An answered one stays answered."""
        self._database.change(_open_still(name).values(state=state.value))

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


def _open_still(name: str) -> sa.Update:
    """A change of a request that is not answered."""
    return sa.update(_REQUESTS).where(
        _REQUESTS.c.id == name, _REQUESTS.c.state != RequestState.ANSWERED.value
    )
