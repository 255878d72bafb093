"""The stored ledger: receipts, each with the seed of its noise, and what was lost. Run by a helper.

A backup's ledger is marked as one: once restored, it answers nothing until it is recovered, whatever the
anchor says. Where receipts are missing for good, nobody knows what they cost. So every account that they may
concern counts as spent: each account is of one document, and all up to the newest one known are closed. A
later document has other sources, and begins with its whole budget.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from maskedlark.ledger import receipt
from maskedlark.ledger.budget import BudgetEntry, SessionRefund
from maskedlark.ledger.errors import AccountClosed, LedgerBehind, RequestIdReused
from maskedlark.ledger.receipt import (
    CheckKeyReceipt,
    ClosedReceipt,
    OpenedReceipt,
    ReleaseReceipt,
    SignedReceipt,
)
from maskedlark.parameters.document import Document
from maskedlark.wire.report import MAX_ORIGIN

SCHEMA_VERSION = 4
NOTHING = bytes(32)
"""The digest in the head of a chain without receipts."""

TABLES = sa.MetaData()
HEADS = sa.Table(
    "ledger_heads",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)
RECEIPTS = sa.Table(
    "ledger_lines",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    # Of a check key: the document's digest, so that no document has two. No request's id has its length.
    sa.Column("request", sa.LargeBinary, nullable=True),
    sa.Column("request_digest", sa.LargeBinary, nullable=True),  # Of a closed session: of its steps.
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("seed", sa.LargeBinary, nullable=True),
    sa.Column("engine", sa.String(256), nullable=True),
    sa.Column("expires", sa.BigInteger, nullable=True),
    sa.Column("receipt", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("origin", "request"),
)
COPIES = sa.Table("ledger_copies", TABLES, sa.Column("taken", sa.BigInteger, primary_key=True))
_CLOSED = sa.Table(
    "ledger_closed",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
)


class ChainHead(NamedTuple):
    """A place in an origin's chain: a receipt's number and digest."""

    number: int
    digest: bytes


def check_anchor(connection: sa.Connection, origin: str, head: ChainHead | None) -> None:
    """Refuse a chain that lacks receipts that left, or whose anchor is missing."""
    if head is None and receipt_at(connection, origin, 1) is not None:
        raise LedgerBehind(
            f"there are receipts for {origin}, but nothing says how far they got: put the anchor back. "
            "If it is lost and this ledger is surely the newest, run `maskedlark helper accept-ledger`; if "
            "the ledger is an old copy, `maskedlark helper recover`"
        )
    if head is None or head.number == 0:
        return
    if digest_at(connection, origin, head.number) != head.digest:
        raise LedgerBehind(
            f"the ledger lacks receipt {head.number} for {origin}, which was signed and may have left: it is "
            "an old copy. Put the newest one back, or run `maskedlark helper recover` with the receipts that "
            "were signed since; a budget is never reset"
        )


def digest_at(connection: sa.Connection, origin: str, number: int) -> bytes | None:
    """The digest of the receipt of that number; for a lost one, as the next one states it."""
    if signed := receipt_at(connection, origin, number):
        return signed.digest
    following = receipt_at(connection, origin, number + 1)
    previous = following.claimed().previous if following else None
    return None if previous is None else bytes.fromhex(previous)


def end(connection: sa.Connection, origin: str) -> ChainHead:
    """The last receipt of an origin's chain."""
    number = connection.scalar(sa.select(HEADS.c.number).where(HEADS.c.origin == origin)) or 0
    last = receipt_at(connection, origin, number)
    return ChainHead(number, last.digest if last else NOTHING)


def expire(connection: sa.Connection, now: int) -> None:
    """Delete noise seeds that no answer needs: with them, noise could be removed from stored answers."""
    over = sa.update(RECEIPTS).where(RECEIPTS.c.expires <= now, RECEIPTS.c.seed.is_not(None))
    connection.execute(over.values(seed=None))


def append(connection: sa.Connection, signed: SignedReceipt, **secret: bytes | str | int) -> None:
    """Append a receipt with the helper's secrets about it. Under the chain's lock."""
    made = signed.claimed()
    line = {
        "origin": made.origin,
        "number": made.number,
        "parameters": bytes.fromhex(made.parameters),
        "receipt": signed.encode(),
    }
    connection.execute(sa.insert(RECEIPTS).values(**line, **secret))
    connection.execute(sa.update(HEADS).where(HEADS.c.origin == made.origin).values(number=made.number))


def put_back(connection: sa.Connection, signed: SignedReceipt) -> None:
    """Append a receipt that was lost and then supplied: it counts, but its query is no longer answered."""
    made, named = signed.claimed(), {}
    if isinstance(made, ReleaseReceipt | OpenedReceipt):
        named = {"request": bytes.fromhex(made.request), "request_digest": bytes.fromhex(made.request_digest)}
    elif isinstance(made, CheckKeyReceipt):
        named = {"request": bytes.fromhex(made.parameters)}
    elif isinstance(made, ClosedReceipt):
        named = {"request_digest": bytes.fromhex(made.steps_digest)}
    append(connection, signed, **named)


def receipt_at(connection: sa.Connection, origin: str, number: int) -> SignedReceipt | None:
    """The receipt of that number; None if there is none."""
    query = sa.select(RECEIPTS.c.receipt).where(RECEIPTS.c.origin == origin, RECEIPTS.c.number == number)
    stored = connection.scalar(query)
    return None if stored is None else receipt.decode(stored)


def receipts(
    connection: sa.Connection, origin: str, after: int, until: int, most: int, most_bytes: int
) -> list[SignedReceipt]:
    """Receipts of an origin's chain, after one number and up to another: at most `most`, or these bytes."""
    here = (RECEIPTS.c.origin == origin, RECEIPTS.c.number > after, RECEIPTS.c.number <= until)
    query = sa.select(RECEIPTS.c.receipt).where(*here).order_by(RECEIPTS.c.number).limit(most)
    found, size = [], 0
    for stored in connection.execution_options(yield_per=8).scalars(query):
        found.append(receipt.decode(stored))
        if (size := size + len(stored)) > most_bytes:
            break
    return found


def find(connection: sa.Connection, origin: str, request: bytes, digest: bytes) -> sa.Row[Any] | None:
    """The row of a query that was charged before. Refuses another query under its id."""
    query = sa.select(RECEIPTS).where(RECEIPTS.c.origin == origin, RECEIPTS.c.request == request)
    row = connection.execute(query).one_or_none()
    if row is not None and row.request_digest != digest:
        raise RequestIdReused(f"request {request.hex()} asked something else; use another id")
    return row


def check_key(connection: sa.Connection, document: Document) -> SignedReceipt | None:
    """The receipt of a document's pinned check key; None if there is none."""
    named = RECEIPTS.c.origin == document.origin, RECEIPTS.c.request == document.digest
    stored = connection.scalar(sa.select(RECEIPTS.c.receipt).where(*named))
    return None if stored is None else receipt.decode(stored)


def entries(
    connection: sa.Connection, document: Document, after: int, until: int
) -> Iterator[BudgetEntry | SessionRefund]:
    """The releases and sessions under a document between two places of its origin's chain."""
    query = sa.select(RECEIPTS.c.receipt).where(
        RECEIPTS.c.origin == document.origin,
        RECEIPTS.c.parameters == document.digest,
        RECEIPTS.c.request_digest.is_not(None),
        RECEIPTS.c.number > after,
        RECEIPTS.c.number <= until,
    )
    for row in connection.execute(query.order_by(RECEIPTS.c.number)):
        made = receipt.decode(row.receipt).claimed()
        assert isinstance(made, ReleaseReceipt | OpenedReceipt | ClosedReceipt), "only these cost anything"
        if (entry := made.entry()) is not None:
            yield entry


def is_copy(connection: sa.Connection) -> bool:
    """Whether this ledger was restored from a backup and not yet recovered."""
    return connection.execute(sa.select(COPIES).limit(1)).first() is not None


def mark_copy(connection: sa.Connection, taken: int) -> None:
    """Mark a backup's ledger as a copy. Never call it on the ledger itself."""
    connection.execute(sa.insert(COPIES).values(taken=taken))


def refuse_copy(connection: sa.Connection) -> None:
    """Refuse a ledger that is a copy: it lacks what was answered after it was made."""
    if is_copy(connection):
        raise LedgerBehind(
            "this ledger was put back from a backup, which lacks what was answered since: run "
            "`maskedlark helper recover` with the receipts"
        )


def close(connection: sa.Connection, document: Document) -> None:
    """Refuse all further charges under this document of its origin, or an earlier one."""
    if not is_closed(connection, document):
        connection.execute(sa.insert(_CLOSED).values(origin=document.origin, version=document.version))


def is_closed(connection: sa.Connection, document: Document) -> bool:
    """Whether the account of a document counts as spent."""
    query = sa.select(_CLOSED).where(
        _CLOSED.c.origin == document.origin, _CLOSED.c.version >= document.version
    )
    return connection.execute(query.limit(1)).first() is not None


def refuse_closed(connection: sa.Connection, document: Document) -> None:
    """Refuse an account that counts as spent."""
    if is_closed(connection, document):
        raise AccountClosed(
            f"this helper lost receipts under version {document.version} of {document.origin} or a later "
            "one: what they cost is not known, so all of it counts as spent. Publish a new version"
        )
