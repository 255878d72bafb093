"""Sessions, their steps, and the slots of datasets, as they are stored. Run by a helper.

A *slot* is the number of a step in a dataset. A session reserves as many as it has steps, in each of its
datasets, and no other ever gets them: not even those that it did not use.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    func,
    insert,
    select,
    update,
)

from maskedlark.privacy.errors import NoSuchSession, StepTaken
from maskedlark.privacy.receipt import OpenedReceipt
from maskedlark.storage.engine import Database
from maskedlark.wire.report import MOST_ORIGIN

SCHEMA_VERSION = 1
LOST = 0
"""Closed by no receipt: its steps were lost. A session that counts whole."""
TABLES = MetaData()
_SESSIONS = Table(
    "ledger_sessions",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("request", LargeBinary, primary_key=True),
    Column("opened", BigInteger, nullable=False),
    Column("closed", BigInteger, nullable=True),
    Column("steps", BigInteger, nullable=False),
    Column("seed", LargeBinary, nullable=False),
    Column("engine", String(256), nullable=False),
    Column("body", LargeBinary, nullable=False),
)
_STEPS = Table(
    "ledger_steps",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("session", LargeBinary, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
_SLOTS = Table(
    "ledger_slots",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("dataset", LargeBinary, primary_key=True),
    Column("next", BigInteger, nullable=False),
)


@dataclass(frozen=True, repr=False)
class Stored:
    """A session's row: the numbers of its receipts, its steps, and what its noise is made with."""

    opened: int
    closed: int | None
    """The closing receipt's number; none while it is open."""
    steps: int
    seed: bytes
    engine: str


def following(connection: Connection, origin: str, datasets: Sequence[bytes]) -> tuple[int, ...]:
    """The first slot of every dataset that nobody has yet."""
    query = select(_SLOTS).where(_SLOTS.c.origin == origin, _SLOTS.c.dataset.in_(datasets))
    found = {bytes(row.dataset): int(row.next) for row in connection.execute(query)}
    return tuple(found.get(dataset, 0) for dataset in datasets)


def reserve(
    database: Database, connection: Connection, origin: str, datasets: Sequence[bytes], steps: int
) -> tuple[int, ...]:
    """The first of so many new slots in every dataset. Under the chain's lock."""
    database.insert_new(connection, _SLOTS, [(origin, dataset, 0) for dataset in sorted(datasets)])
    firsts = following(connection, origin, datasets)
    for dataset, first in zip(datasets, firsts, strict=True):
        here = (_SLOTS.c.origin == origin, _SLOTS.c.dataset == dataset)
        connection.execute(update(_SLOTS).where(*here).values(next=first + steps))
    return firsts


def add(connection: Connection, origin: str, request: bytes, stored: Stored, body: bytes) -> None:
    """A new session, without a step taken, and the request that opened it."""
    connection.execute(insert(_SESSIONS).values(origin=origin, request=request, body=body, **vars(stored)))


# Made once: what SQLAlchemy does to make a statement costs every step as much as its commit.
_FIND = select(
    *(_SESSIONS.c.opened, _SESSIONS.c.closed, _SESSIONS.c.steps, _SESSIONS.c.seed, _SESSIONS.c.engine)
).where(_SESSIONS.c.origin == bindparam("of"), _SESSIONS.c.request == bindparam("named"))
_FINDS = {None: _FIND, "shared": _FIND.with_for_update(read=True), "alone": _FIND.with_for_update()}


def find(
    connection: Connection, origin: str, session: bytes, lock: Literal["shared", "alone"] | None = None
) -> Stored:
    """A session. With a lock nobody closes it, and alone nobody takes a step of it, until this is over."""
    row = connection.execute(_FINDS[lock], {"of": origin, "named": session}).one_or_none()
    if row is None:
        raise NoSuchSession(f"no session {session.hex()} was opened here")
    return Stored(row.opened, row.closed, row.steps, bytes(row.seed), row.engine)


def body(connection: Connection, origin: str, session: bytes) -> bytes:
    """The request that opened a session: after a restart its steps are answered as before."""
    query = select(_SESSIONS.c.body).where(_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    return bytes(connection.execute(query).scalar_one())


def is_here(connection: Connection, origin: str, session: bytes) -> bool:
    """Whether there is such a session, open or closed."""
    query = select(_SESSIONS.c.opened).where(_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    return connection.scalar(query) is not None


def taken(connection: Connection, origin: str, session: bytes, step: int) -> bytes | None:
    """The digest of the body that has taken a step; none if nobody has."""
    query = select(_STEPS.c.body).where(
        _STEPS.c.origin == origin, _STEPS.c.session == session, _STEPS.c.step == step
    )
    found = connection.scalar(query)
    return None if found is None else bytes(found)


def take(
    database: Database, connection: Connection, origin: str, session: bytes, step: int, body: bytes
) -> None:
    """Let a step be this body's for ever; raise if it is another's."""
    if database.insert_new(connection, _STEPS, [(origin, session, step, body)]):
        return
    if taken(connection, origin, session, step) != body:
        raise StepTaken(f"step {step} was taken by another request: each is answered for one, ever")


def used(connection: Connection, origin: str, session: bytes) -> int:
    """Steps up to the last one that was taken."""
    here = (_STEPS.c.origin == origin, _STEPS.c.session == session)
    last = connection.scalar(select(func.max(_STEPS.c.step)).where(*here))
    return 0 if last is None else int(last) + 1


def digest(connection: Connection, origin: str, session: bytes) -> bytes:
    """Over all steps that were taken, and their bodies' digests, in order."""
    here = (_STEPS.c.origin == origin, _STEPS.c.session == session)
    found = hashlib.sha256()
    for row in connection.execute(select(_STEPS).where(*here).order_by(_STEPS.c.step)):
        found.update(row.step.to_bytes(8, "big") + bytes(row.body))
    return found.digest()


def close(connection: Connection, origin: str, session: bytes, number: int) -> None:
    """No step is taken any more. `number`: of the closing receipt."""
    here = (_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    connection.execute(update(_SESSIONS).where(*here).values(closed=number))


def lose_open(connection: Connection) -> None:
    """Close every session for good, and let it count whole: steps of theirs may be lost. By a recovery."""
    connection.execute(update(_SESSIONS).where(_SESSIONS.c.closed.is_(None)).values(closed=LOST))


def put_back(database: Database, connection: Connection, opened: OpenedReceipt) -> None:
    """Let nobody have the slots of a session that was lost. Run by a recovery."""
    datasets = [bytes.fromhex(dataset) for dataset in opened.datasets]
    database.insert_new(connection, _SLOTS, [(opened.origin, dataset, 0) for dataset in sorted(datasets)])
    for dataset, first in zip(datasets, opened.slots, strict=True):
        behind = first + opened.steps
        here = (_SLOTS.c.origin == opened.origin, _SLOTS.c.dataset == dataset, _SLOTS.c.next < behind)
        connection.execute(update(_SLOTS).where(*here).values(next=behind))
