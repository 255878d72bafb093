"""Sessions and the slots of datasets, as stored. Run by a helper.

A *slot* is the number of a step in a dataset. A session's request names the slots that it reserves, one per
step in each of its datasets. No other session ever gets them, even if they stay unused. They are named and
not assigned, so that a request has the same batches at every helper.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from maskedlark.ledger import receipt
from maskedlark.ledger.errors import NoSuchSession, SessionLost, SlotTaken
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.ledger.rows import COPIES, RECEIPTS, TABLES
from maskedlark.wire.report import MAX_ORIGIN

LOST = 0
"""Closed without a receipt because its steps were lost: the whole session counts."""
_SESSIONS = sa.Table(
    "ledger_sessions",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("request", sa.LargeBinary, primary_key=True),
    sa.Column("opened", sa.BigInteger, nullable=False),
    sa.Column("closed", sa.BigInteger, nullable=True),
    sa.Column("steps", sa.BigInteger, nullable=False),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("taken", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_SLOTS = sa.Table(
    "ledger_slots",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("dataset", sa.LargeBinary, primary_key=True),
    sa.Column("first", sa.BigInteger, primary_key=True),
    sa.Column("end", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, repr=False)
class StoredSession:
    """A session's row: its receipts' numbers, its steps, and what its noise is made with."""

    opened: int
    closed: int | None
    """The closing receipt's number; None while it is open."""
    steps: int
    used: int
    """Steps claimed so far: the next has this number."""
    taken: bytes
    """The digest of the body that claimed the last of them."""
    digest: bytes
    """Over all of them, in order."""
    seed: bytes | None
    """The seed of its noise; None once its datasets have expired."""
    engine: str


def free_slot(connection: sa.Connection, origin: str, dataset: bytes) -> int:
    """The first slot of a dataset after all reserved ones."""
    query = sa.select(sa.func.max(_SLOTS.c.end)).where(_SLOTS.c.origin == origin, _SLOTS.c.dataset == dataset)
    return int(connection.scalar(query) or 0)


def reserve(
    connection: sa.Connection, origin: str, datasets: Sequence[bytes], firsts: Sequence[int], steps: int
) -> None:
    """Reserve `steps` slots from each first slot; raises SlotTaken on overlap. Under the chain's lock."""
    for dataset, first in zip(datasets, firsts, strict=True):
        here = (_SLOTS.c.origin == origin, _SLOTS.c.dataset == dataset)
        end = first + steps
        overlapping = sa.select(_SLOTS.c.first).where(*here, _SLOTS.c.first < end, _SLOTS.c.end > first)
        if connection.execute(overlapping.limit(1)).first() is not None:
            raise SlotTaken(free_slot(connection, origin, dataset))
        row = {"origin": origin, "dataset": dataset, "first": first, "end": end}
        connection.execute(sa.insert(_SLOTS).values(**row))


def add(connection: sa.Connection, origin: str, request: bytes, opened: int, steps: int, body: bytes) -> None:
    """Store a new session and the request that opened it. `opened`: its receipt's number."""
    row = {"origin": origin, "request": request, "opened": opened, "steps": steps, "body": body}
    connection.execute(sa.insert(_SESSIONS).values(**row, used=0, taken=b"", digest=bytes(32)))


# Made once: SQLAlchemy takes as long to build a statement as a step's commit takes.
_HERE = sa.and_(_SESSIONS.c.origin == sa.bindparam("of"), _SESSIONS.c.request == sa.bindparam("named"))
_FIND = (
    sa.select(
        *(column for column in _SESSIONS.c if column.name not in ("origin", "request", "body")),
        RECEIPTS.c.seed,
        RECEIPTS.c.engine,
    )
    .join(RECEIPTS, sa.and_(RECEIPTS.c.origin == _SESSIONS.c.origin, RECEIPTS.c.number == _SESSIONS.c.opened))
    .where(_HERE)
)
_LOCK = _FIND.with_for_update(of=_SESSIONS)
_ASSIGN = (
    sa.update(_SESSIONS)
    .where(_HERE)
    .values(used=sa.bindparam("used_now"), taken=sa.bindparam("taken_now"), digest=sa.bindparam("digest_now"))
)


def find(connection: sa.Connection, origin: str, session: bytes, *, lock: bool = False) -> StoredSession:
    """A session. With the lock, nobody closes it or claims a step of it until the transaction ends."""
    row = connection.execute(_LOCK if lock else _FIND, {"of": origin, "named": session}).one_or_none()
    if row is None:
        here = RECEIPTS.c.origin == origin, RECEIPTS.c.request == session
        signed = connection.scalar(sa.select(RECEIPTS.c.receipt).where(*here))
        if signed is not None and isinstance(receipt.decode(signed).claimed(), OpenedReceipt):
            raise lost(session)  # Its receipt was put back by a recovery, and nothing else of it.
        raise NoSuchSession(f"no session {session.hex()} was opened here")
    return StoredSession(*tuple[Any, ...](row))


def lost(session: bytes) -> SessionLost:
    """The error for a session of which this helper knows no steps any more."""
    return SessionLost(
        f"session {session.hex()} was opened and charged, but its steps were lost since: open another under "
        "another id, which is charged again"
    )


def body(connection: sa.Connection, origin: str, session: bytes) -> bytes:
    """The request that opened a session: after a restart its steps are answered from it."""
    query = sa.select(_SESSIONS.c.body).where(_HERE)
    return bytes(connection.execute(query, {"of": origin, "named": session}).scalar_one())


def assign_step(
    connection: sa.Connection, origin: str, session: bytes, stored: StoredSession, body: bytes
) -> None:
    """Assign the next step to this body for good. Under the session's lock."""
    digest = hashlib.sha256(stored.digest + stored.used.to_bytes(8, "big") + body).digest()
    now = {"used_now": stored.used + 1, "taken_now": body, "digest_now": digest}
    connection.execute(_ASSIGN, {"of": origin, "named": session, **now})


def close(connection: sa.Connection, origin: str, session: bytes, number: int) -> None:
    """Allow no more steps. `number`: the closing receipt's."""
    connection.execute(
        sa.update(_SESSIONS).where(_HERE).values(closed=number), {"of": origin, "named": session}
    )


def end_recovery(connection: sa.Connection) -> None:
    """A copy becomes the ledger. Its open sessions may have lost steps: they end, and count as a whole."""
    connection.execute(sa.delete(COPIES))
    connection.execute(sa.update(_SESSIONS).where(_SESSIONS.c.closed.is_(None)).values(closed=LOST))
