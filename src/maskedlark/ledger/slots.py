"""Sessions and the slots of datasets, as they are stored. Run by a helper.

A *slot* is the number of a step in a dataset. A session's request names those that it takes, as many as it
has steps, in each of its datasets, and no other session ever gets them: not even those that it did not use.
They are named and not assigned, so that a request has the same batches at every helper.
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

from maskedlark.ledger.errors import NoSuchSession, SlotTaken
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.wire.report import MOST_ORIGIN

SCHEMA_VERSION = 2
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
    Column("expires", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False),
    Column("taken", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
_SLOTS = Table(
    "ledger_slots",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("dataset", LargeBinary, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("end", BigInteger, nullable=False),
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
    expires: int
    used: int = 0
    """Steps that were taken: the next has this number."""
    taken: bytes = b""
    """The digest of the body that has taken the last of them."""
    digest: bytes = bytes(32)
    """Over all of them, in order."""


def following(connection: Connection, origin: str, datasets: Sequence[bytes]) -> tuple[int, ...]:
    """For every dataset, the first slot after all that sessions have."""
    here = (_SLOTS.c.origin == origin, _SLOTS.c.dataset.in_(datasets))
    query = select(_SLOTS.c.dataset, func.max(_SLOTS.c.end)).where(*here).group_by(_SLOTS.c.dataset)
    ends = {bytes(dataset): int(end) for dataset, end in connection.execute(query)}
    return tuple(ends.get(dataset, 0) for dataset in datasets)


def reserve(
    connection: Connection, origin: str, datasets: Sequence[bytes], firsts: Sequence[int], steps: int
) -> None:
    """Let nobody else have so many slots from these on. Refuses what somebody has. Under the chain's lock."""
    for dataset, first in zip(datasets, firsts, strict=True):
        here = (_SLOTS.c.origin == origin, _SLOTS.c.dataset == dataset)
        overlapping = select(_SLOTS.c.first).where(
            *here, _SLOTS.c.first < first + steps, _SLOTS.c.end > first
        )
        if connection.execute(overlapping.limit(1)).first() is not None:
            raise SlotTaken(following(connection, origin, [dataset])[0])
    rows = zip(datasets, firsts, strict=True)
    values = [
        {"origin": origin, "dataset": each, "first": first, "end": first + steps} for each, first in rows
    ]
    connection.execute(insert(_SLOTS), values)


def add(connection: Connection, origin: str, request: bytes, stored: Stored, body: bytes) -> None:
    """A new session, without a step taken, and the request that opened it."""
    connection.execute(insert(_SESSIONS).values(origin=origin, request=request, body=body, **vars(stored)))


# Made once: what SQLAlchemy does to make a statement costs every step as much as its commit.
_HERE = (_SESSIONS.c.origin == bindparam("of"), _SESSIONS.c.request == bindparam("named"))
_FIND = select(*(column for column in _SESSIONS.c if column.name not in ("origin", "request", "body"))).where(
    *_HERE
)
_FINDS = {None: _FIND, "alone": _FIND.with_for_update()}
_TAKE = (
    update(_SESSIONS)
    .where(*_HERE)
    .values(used=bindparam("used_now"), taken=bindparam("taken_now"), digest=bindparam("digest_now"))
)


def find(connection: Connection, origin: str, session: bytes, lock: Literal["alone"] | None = None) -> Stored:
    """A session. With the lock nobody closes it or takes a step of it until this is over."""
    row = connection.execute(_FINDS[lock], {"of": origin, "named": session}).one_or_none()
    if row is None:
        raise NoSuchSession(f"no session {session.hex()} was opened here")
    numbers = row.opened, row.closed, row.steps
    progress = row.used, bytes(row.taken), bytes(row.digest)
    return Stored(*numbers, bytes(row.seed), row.engine, row.expires, *progress)


def body(connection: Connection, origin: str, session: bytes) -> bytes:
    """The request that opened a session: after a restart its steps are answered as before."""
    query = select(_SESSIONS.c.body).where(_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    return bytes(connection.execute(query).scalar_one())


def is_here(connection: Connection, origin: str, session: bytes) -> bool:
    """Whether there is such a session, open or closed."""
    query = select(_SESSIONS.c.opened).where(_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    return connection.scalar(query) is not None


def take(connection: Connection, origin: str, session: bytes, stored: Stored, body: bytes) -> None:
    """Let the next step be this body's for ever. Under the session's lock."""
    digest = hashlib.sha256(stored.digest + stored.used.to_bytes(8, "big") + body).digest()
    now = {"used_now": stored.used + 1, "taken_now": body, "digest_now": digest}
    connection.execute(_TAKE, {"of": origin, "named": session, **now})


def close(connection: Connection, origin: str, session: bytes, number: int) -> None:
    """No step is taken any more. `number`: of the closing receipt."""
    here = (_SESSIONS.c.origin == origin, _SESSIONS.c.request == session)
    connection.execute(update(_SESSIONS).where(*here).values(closed=number))


def expire(connection: Connection, now: int) -> None:
    """Delete the seeds of noise of sessions whose datasets are gone: no step of theirs is answered."""
    over = update(_SESSIONS).where(_SESSIONS.c.expires <= now, _SESSIONS.c.seed != b"")
    connection.execute(over.values(seed=b""))


def lose_open(connection: Connection) -> None:
    """Close every session for good, and let it count whole: steps of theirs may be lost. By a recovery."""
    connection.execute(update(_SESSIONS).where(_SESSIONS.c.closed.is_(None)).values(closed=LOST))


def put_back(connection: Connection, opened: OpenedReceipt) -> None:
    """Let nobody have the slots of a session that was lost. Run by a recovery."""
    datasets = [bytes.fromhex(dataset) for dataset in opened.datasets]
    reserve(connection, opened.origin, datasets, opened.slots, opened.steps)
