"""The ledger: a durable budget, charged before anything is released. Run by a helper.

Its lines are the helper's receipts, one chain an origin, each with what only the helper may know: the seed of
its noise. A line is written in one transaction, which first checks the budget; once it is there, the same
request always gets the same line, and so the same noise. An *anchor* outside the database remembers how far
the chain got: a ledger that was put back from an old copy is behind it, and answers nothing.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.privacy import mechanisms, receipt
from maskedlark.privacy.accountant import Charge
from maskedlark.privacy.budget import Account, Cost, Entry
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import CannotRepeat, LedgerBehind, RequestIdReused
from maskedlark.privacy.receipt import (
    Balance,
    Receipt,
    Released,
    ReleaseReceipt,
    SealedReceipt,
    SignedCertificate,
    SignedReceipt,
)
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.wire.report import MOST_ORIGIN
from maskedlark.wire.signatures import SigningKey

SCHEMA_VERSION = 1
SEED_BYTES = 32
PAGE = 1000

_TABLES = MetaData()
_HEADS = Table(
    "ledger_heads",
    _TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
_LINES = Table(
    "ledger_lines",
    _TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("request", LargeBinary, nullable=True),
    Column("question", LargeBinary, nullable=True),
    Column("parameters", LargeBinary, nullable=False),
    Column("seed", LargeBinary, nullable=True),
    Column("engine", String(64), nullable=True),
    Column("receipt", LargeBinary, nullable=False),
    UniqueConstraint("origin", "request"),
)


class Mark(NamedTuple):
    """A place in an origin's chain: the number of a receipt, and its digest."""

    number: int
    digest: bytes


class Anchor(Protocol):
    """What a helper remembers outside its database: the last receipt of every origin that may have left."""

    def origins(self) -> list[str]:
        """All origins that have a mark."""

    def read(self, origin: str) -> Mark | None:
        """The last mark of an origin."""

    def write(self, origin: str, mark: Mark) -> None:
        """Remember a mark durably, before returning. Never goes back."""


class Signer(Protocol):
    """What receipts are signed with, at this moment: keys are rotated."""

    helper: str

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        """The key, and the identity's certificate of it."""


@dataclass(frozen=True)
class Charging:
    """A question to be charged: checked in every other way already."""

    request: bytes
    question: bytes
    """The digest of the request's bytes."""
    function: str
    tag: str | None
    datasets: tuple[bytes, ...]
    charge: Charge

    def entry(self) -> Entry:
        """As the budget sees it."""
        return Entry(self.tag, self.datasets, self.charge)


class _Head(NamedTuple):
    """The end of an origin's chain: how many receipts there are, and the last of them."""

    number: int
    last: SignedReceipt | None


class _Known(NamedTuple):
    """An account, and up to which receipt it counts."""

    number: int
    account: Account


@dataclass(frozen=True, repr=False)
class Line:
    """A charged question: its receipt, and the seed of its noise."""

    receipt: SignedReceipt
    seed: bytes


class Ledger:
    """Durable, and safe to share: threads and processes that write to one origin's chain take turns."""

    def __init__(
        self, database: Database, anchor: Anchor, signer: Signer, clock: Clock, rng: Randomness
    ) -> None:
        prepare(database, "ledger", SCHEMA_VERSION, _TABLES)
        self._database = database
        self._anchor = anchor
        self._signer = signer
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._known: dict[tuple[str, bytes], _Known] = {}

    def charge(self, document: Document, charging: Charging) -> Line:
        """The line of this question: the one that is there, or a new one if the budget allows it."""
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            line = _find(connection, document.origin, charging)
            if line is None:
                cost = self._account(connection, document, head).check(charging.entry())
                line = self._release(connection, document, head, charging, cost)
        # Before anything is sent: a receipt that left is one that the anchor knows.
        self.remember(document.origin, line.receipt)
        return line

    def explain(self, document: Document, entry: Entry) -> tuple[Cost, float | None]:
        """What a question would cost now, and the least noise with which it would fit. Charges nothing."""
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            account = self._account(connection, document, head)
            return account.cost(entry), account.noise_that_fits(entry)

    def seal(
        self, connection: Connection, document: Document, purpose: Purpose, dataset: bytes, records: int
    ) -> SignedReceipt:
        """Write down that a dataset is sealed, in the transaction that seals it; then `remember` it."""
        head = self._head(connection, document.origin)
        made = SealedReceipt(
            **self._place(document, head),
            purpose=purpose.value,
            dataset=dataset.hex(),
            records=records,
        )
        return self._append(connection, made, {})

    def remember(self, origin: str, signed: SignedReceipt) -> None:
        """Anchor a receipt that is durable, before it leaves."""
        with self._lock:
            mark = Mark(signed.claimed().number, signed.digest)
            before = self._anchor.read(origin)
            if before is None or before.number < mark.number:
                self._anchor.write(origin, mark)

    def receipts(self, origin: str, after: int = 0) -> list[SignedReceipt]:
        """The next page of an origin's chain, behind the receipt of that number."""
        lines = select(_LINES.c.receipt).where(_LINES.c.origin == origin, _LINES.c.number > after)
        with self._database.read() as connection:
            rows = connection.execute(lines.order_by(_LINES.c.number).limit(PAGE))
            return [receipt.decode(bytes(row.receipt)) for row in rows]

    def check(self) -> None:
        """Return if no origin's chain is behind its anchor; raise if one is. Run at the start."""
        with self._database.read() as connection:
            for origin in self._anchor.origins():
                self._check_anchor(connection, origin)

    def _head(self, connection: Connection, origin: str) -> _Head:
        """The end of an origin's chain. Holds its lock: nobody else writes until the transaction ends."""
        self._database.insert_new(connection, _HEADS, [(origin, 0)])
        query = select(_HEADS.c.number).where(_HEADS.c.origin == origin).with_for_update()
        number = connection.execute(query).scalar_one()
        self._check_anchor(connection, origin)
        return _Head(number, _receipt(connection, origin, number) if number else None)

    def _check_anchor(self, connection: Connection, origin: str) -> None:
        mark = self._anchor.read(origin)
        if mark is None:
            return
        found = _receipt(connection, origin, mark.number)
        if found is None or found.digest != mark.digest:
            raise LedgerBehind(
                f"the ledger lacks receipt {mark.number} for {origin}, which was signed and may have left: "
                "it is an old copy. Put the newest one back; a budget is never reset"
            )

    def _account(self, connection: Connection, document: Document, head: _Head) -> Account:
        """All releases under a document, brought up to the head. What is not committed is never counted."""
        with self._lock:
            name = document.origin, document.digest
            known = self._known.get(name)
            if known is None or known.number > head.number:
                known = _Known(0, Account(document))
            for entry in _entries(connection, document, known.number, head.number):
                known.account.add(entry)
            self._known[name] = _Known(head.number, known.account)
            return known.account

    def _place(self, document: Document, head: _Head) -> dict[str, Any]:
        """What every receipt says of itself and of its place in the chain."""
        last = head.last.claimed().time if head.last else 0
        return {
            "helper": self._signer.helper,
            "origin": document.origin,
            "number": head.number + 1,
            "previous": head.last.digest.hex() if head.last else None,
            "time": max(self._clock.now(), last),  # A clock that is put back does not break the chain.
            "parameters": document.digest.hex(),
        }

    def _release(
        self, connection: Connection, document: Document, head: _Head, charging: Charging, cost: Cost
    ) -> Line:
        charge = charging.charge
        made = ReleaseReceipt(
            **self._place(document, head),
            request=charging.request.hex(),
            question=charging.question.hex(),
            function=charging.function,
            tag=charging.tag,
            datasets=tuple(dataset.hex() for dataset in charging.datasets),
            released=Released(mechanism=charge.kind, noise=charge.noise, columns=charge.count),
            balance=Balance.of(cost),
        )
        seed = self._rng.bytes(SEED_BYTES)
        secret: dict[str, bytes | str] = {
            "request": charging.request,
            "question": charging.question,
            "seed": seed,
            "engine": mechanisms.engine(charge.kind),
        }
        return Line(self._append(connection, made, secret), seed)

    def _append(self, connection: Connection, made: Receipt, secret: dict[str, bytes | str]) -> SignedReceipt:
        key, certificate = self._signer.current(made.time)
        signed = receipt.sign(made, key, certificate)
        line = {
            "origin": made.origin,
            "number": made.number,
            "parameters": bytes.fromhex(made.parameters),
            "receipt": signed.encode(),
        }
        connection.execute(insert(_LINES).values(**line, **secret))
        heads = update(_HEADS).where(_HEADS.c.origin == made.origin)
        connection.execute(heads.values(number=made.number))
        return signed


def _receipt(connection: Connection, origin: str, number: int) -> SignedReceipt | None:
    query = select(_LINES.c.receipt).where(_LINES.c.origin == origin, _LINES.c.number == number)
    found = connection.scalar(query)
    return None if found is None else receipt.decode(bytes(found))


def _find(connection: Connection, origin: str, charging: Charging) -> Line | None:
    """The line of a request that was charged before. Refuses another question under its id."""
    query = select(_LINES).where(_LINES.c.origin == origin, _LINES.c.request == charging.request)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if bytes(row.question) != charging.question:
        raise RequestIdReused(f"request {charging.request.hex()} asked something else; use another id")
    if row.engine != mechanisms.engine(charging.charge.kind):
        raise CannotRepeat(
            f"request {charging.request.hex()} was answered with noise of another version ({row.engine}), "
            "which cannot be drawn again: ask anew under another id"
        )
    return Line(receipt.decode(bytes(row.receipt)), bytes(row.seed))


def _entries(connection: Connection, document: Document, after: int, until: int) -> Iterator[Entry]:
    query = select(_LINES.c.receipt).where(
        _LINES.c.origin == document.origin,
        _LINES.c.parameters == document.digest,
        _LINES.c.request.is_not(None),
        _LINES.c.number > after,
        _LINES.c.number <= until,
    )
    for row in connection.execute(query.order_by(_LINES.c.number)):
        found = receipt.decode(bytes(row.receipt)).claimed()
        assert isinstance(found, ReleaseReceipt), "only releases have a request"
        yield found.entry()
