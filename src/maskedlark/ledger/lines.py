"""The lines of the ledger as they are stored: receipts, each with the seed of its noise. Run by a helper."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    insert,
    select,
    update,
)

from maskedlark.dp import mechanisms
from maskedlark.dp.accountant import Charge
from maskedlark.ledger import receipt
from maskedlark.ledger.budget import Closing, Entry
from maskedlark.ledger.errors import AnswerLost, CannotRepeat, LedgerBehind, RequestIdReused
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt, ReleaseReceipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.wire.report import MOST_ORIGIN

NOTHING = bytes(32)
"""The digest in the mark of a chain that has no receipt yet."""

TABLES = MetaData()
HEADS = Table(
    "ledger_heads",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
LINES = Table(
    "ledger_lines",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("request", LargeBinary, nullable=True),
    Column("question", LargeBinary, nullable=True),
    Column("parameters", LargeBinary, nullable=False),
    Column("seed", LargeBinary, nullable=True),
    Column("engine", String(256), nullable=True),
    Column("expires", BigInteger, nullable=True),
    Column("receipt", LargeBinary, nullable=False),
    UniqueConstraint("origin", "request"),
)


class Mark(NamedTuple):
    """A place in an origin's chain: the number of a receipt, and its digest."""

    number: int
    digest: bytes


@dataclass(frozen=True)
class Charging:
    """A question to be charged: checked in every other way already."""

    request: bytes
    question: bytes
    """The digest of the request's bytes."""
    function: str
    computed: str
    """The function's engine: what another would answer is not what was charged."""
    tag: str | None
    datasets: tuple[bytes, ...]
    charge: Charge
    expires: int
    """When the first of the datasets is gone: nothing is answered then, and the noise's seed goes too."""

    @property
    def engine(self) -> str:
        """What the same answer is made with."""
        return f"{mechanisms.engine(self.charge.kind)}; {self.computed}"

    def entry(self) -> Entry:
        """As the budget sees it."""
        return Entry(self.tag, self.datasets, self.charge)


@dataclass(frozen=True, repr=False)
class Line:
    """A charged question: its receipt, and the seed of its noise."""

    receipt: SignedReceipt
    seed: bytes


def check_anchor(connection: Connection, origin: str, mark: Mark | None) -> None:
    """Refuse a chain that lacks what left, or whose anchor is not there to tell."""
    if mark is None and receipt_at(connection, origin, 1) is not None:
        raise LedgerBehind(
            f"there are receipts for {origin}, but nothing says how far they got: put the anchor back. "
            "If it is lost and this ledger is surely the newest, run `maskedlark helper accept-ledger`; if "
            "the ledger is an old copy, `maskedlark helper recover`"
        )
    if mark is None or mark.number == 0:
        return
    if digest_at(connection, origin, mark.number) != mark.digest:
        raise LedgerBehind(
            f"the ledger lacks receipt {mark.number} for {origin}, which was signed and may have left: it is "
            "an old copy. Put the newest one back, or run `maskedlark helper recover` with the receipts that "
            "were signed since; a budget is never reset"
        )


def digest_at(connection: Connection, origin: str, number: int) -> bytes | None:
    """The digest of the receipt of that number; of one that was lost, as the next one names it."""
    if found := receipt_at(connection, origin, number):
        return found.digest
    following = receipt_at(connection, origin, number + 1)
    previous = following.claimed().previous if following else None
    return None if previous is None else bytes.fromhex(previous)


def end(connection: Connection, origin: str) -> Mark:
    """The last receipt of an origin's chain."""
    number = connection.scalar(select(HEADS.c.number).where(HEADS.c.origin == origin)) or 0
    last = receipt_at(connection, origin, number)
    return Mark(number, last.digest if last else NOTHING)


def expire(connection: Connection, now: int) -> None:
    """Delete the seeds of noise that no answer needs any more: with it, stored answers have none."""
    over = update(LINES).where(LINES.c.expires <= now, LINES.c.seed.is_not(None))
    connection.execute(over.values(seed=None))


def append(connection: Connection, signed: SignedReceipt, **secret: bytes | str | int) -> None:
    """Put a receipt behind the last one, with what only the helper knows of it. Under the chain's lock."""
    made = signed.claimed()
    line = {
        "origin": made.origin,
        "number": made.number,
        "parameters": bytes.fromhex(made.parameters),
        "receipt": signed.encode(),
    }
    connection.execute(insert(LINES).values(**line, **secret))
    connection.execute(update(HEADS).where(HEADS.c.origin == made.origin).values(number=made.number))


def put_back(connection: Connection, signed: SignedReceipt) -> None:
    """A receipt that was lost and handed in: it counts, but its question is answered no more."""
    made = signed.claimed()
    if isinstance(made, ReleaseReceipt | OpenedReceipt):
        request, question = bytes.fromhex(made.request), bytes.fromhex(made.question)
        append(connection, signed, request=request, question=question)
    elif isinstance(made, ClosedReceipt):
        append(connection, signed, question=bytes.fromhex(made.digest))
    else:
        append(connection, signed)


def receipt_at(connection: Connection, origin: str, number: int) -> SignedReceipt | None:
    """The receipt of that number; none if there is none."""
    query = select(LINES.c.receipt).where(LINES.c.origin == origin, LINES.c.number == number)
    found = connection.scalar(query)
    return None if found is None else receipt.decode(bytes(found))


def asked(connection: Connection, origin: str, request: bytes, question: bytes) -> SignedReceipt | None:
    """The receipt of a request that was charged before. Refuses another question under its id."""
    query = select(LINES).where(LINES.c.origin == origin, LINES.c.request == request)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if bytes(row.question) != question:
        raise RequestIdReused(f"request {request.hex()} asked something else; use another id")
    return receipt.decode(bytes(row.receipt))


def find(connection: Connection, origin: str, charging: Charging) -> Line | None:
    """The line of a request that was charged before. Refuses another question under its id."""
    query = select(LINES).where(LINES.c.origin == origin, LINES.c.request == charging.request)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if bytes(row.question) != charging.question:
        raise RequestIdReused(f"request {charging.request.hex()} asked something else; use another id")
    if row.seed is None:
        raise AnswerLost(
            f"request {charging.request.hex()} was answered and charged, but its noise was lost since: ask "
            "anew under another id, which is charged again"
        )
    signed = receipt.decode(bytes(row.receipt))
    before = signed.claimed()
    assert isinstance(before, ReleaseReceipt), "only releases have a request"
    # The old noise under a new answer would cancel out against the old one.
    if row.engine != charging.engine or before.entry() != charging.entry():
        raise CannotRepeat(
            f"request {charging.request.hex()} was answered by another version ({row.engine}), "
            "whose answer cannot be made again: ask anew under another id"
        )
    return Line(signed, bytes(row.seed))


def entries(connection: Connection, document: Document, after: int, until: int) -> Iterator[Entry | Closing]:
    """The releases, and the sessions, under a document between two places of its origin's chain."""
    query = select(LINES.c.receipt).where(
        LINES.c.origin == document.origin,
        LINES.c.parameters == document.digest,
        LINES.c.question.is_not(None),
        LINES.c.number > after,
        LINES.c.number <= until,
    )
    for row in connection.execute(query.order_by(LINES.c.number)):
        found = receipt.decode(bytes(row.receipt)).claimed()
        assert isinstance(found, ReleaseReceipt | OpenedReceipt | ClosedReceipt), "only these cost anything"
        if (entry := found.entry()) is not None:
            yield entry
