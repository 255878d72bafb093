"""The ledger: a durable budget, charged before anything is released. Run by a helper.

Its lines are the helper's receipts, one chain an origin, each with what only the helper may know: the seed of
its noise. A line is written in one transaction, which first checks the budget; once it is there, the same
request always gets the same line, and so the same noise. An *anchor* outside the database remembers how far
the chain got: a ledger that was put back from an old copy is behind it, and answers nothing.
"""

import threading
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, insert, select, update

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.privacy import lines, receipt
from maskedlark.privacy.budget import Account, Cost, Entry
from maskedlark.privacy.document import Document
from maskedlark.privacy.lines import Charging, Line, Mark
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
from maskedlark.wire.signatures import SigningKey

SCHEMA_VERSION = 1
SEED_BYTES = 32
PAGE = 1000


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


class _Head(NamedTuple):
    """The end of an origin's chain: how many receipts there are, and the last of them."""

    number: int
    last: SignedReceipt | None


class _Known(NamedTuple):
    """An account, and up to which receipt it counts."""

    number: int
    account: Account


class Ledger:
    """Durable, and safe to share: threads and processes that write to one origin's chain take turns."""

    def __init__(
        self, database: Database, anchor: Anchor, signer: Signer, clock: Clock, rng: Randomness
    ) -> None:
        prepare(database, "ledger", SCHEMA_VERSION, lines.TABLES)
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
            line = lines.find(connection, document.origin, charging)
            if line is None:
                account, entry = self._account(connection, document, head), charging.entry()
                if account.fits(entry):
                    line = self._release(connection, document, head, charging, account.cost(entry))
                else:
                    account = account.copy()
        if line is None:  # Out here: what would fit takes a while to find, and others wait to write.
            raise account.refusal(charging.entry())
        # Before anything is sent: a receipt that left is one that the anchor knows.
        self.remember(document.origin, line.receipt)
        return line

    def explain(self, document: Document, entry: Entry) -> tuple[Cost, float | None]:
        """What a question would cost now, and the least noise with which it would fit. Charges nothing."""
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            account = self._account(connection, document, head).copy()
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
        """The next page of an origin's chain, behind the receipt of that number.

        Only what the anchor knows: a receipt that was seen outside must never be made again otherwise.
        """
        mark = self._anchor.read(origin)
        query = select(lines.LINES.c.receipt).where(
            lines.LINES.c.origin == origin,
            lines.LINES.c.number > after,
            lines.LINES.c.number <= (mark.number if mark else 0),
        )
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(lines.LINES.c.number).limit(PAGE))
            return [receipt.decode(bytes(row.receipt)) for row in rows]

    def check(self) -> None:
        """Return if no origin's chain is behind its anchor; raise if one is. Run at the start."""
        for origin in sorted({*self._anchor.origins(), *self._origins()}):
            mark = self._anchor.read(origin)
            with self._database.read() as connection:
                lines.check_anchor(connection, origin, mark)

    def accept(self) -> list[str]:
        """Anchor every chain where it stands: for an operator who lost the anchor, not the ledger."""
        origins = self._origins()
        for origin in origins:
            with self._database.read() as connection:
                query = select(lines.HEADS.c.number).where(lines.HEADS.c.origin == origin)
                number = connection.execute(query).scalar_one()
                last = lines.receipt_at(connection, origin, number)
            self._anchor.write(origin, Mark(number, last.digest if last else lines.NOTHING))
        return origins

    def _origins(self) -> list[str]:
        with self._database.read() as connection:
            return list(connection.scalars(select(lines.HEADS.c.origin)))

    def _head(self, connection: Connection, origin: str) -> _Head:
        """The end of an origin's chain. Holds its lock: nobody else writes until the transaction ends."""
        self._database.insert_new(connection, lines.HEADS, [(origin, 0)])
        query = select(lines.HEADS.c.number).where(lines.HEADS.c.origin == origin).with_for_update()
        number = connection.execute(query).scalar_one()
        mark = self._anchor.read(origin)
        if number == 0 and mark is None:
            # Before the first line: from then on a chain without an anchor is one whose anchor was lost.
            self._anchor.write(origin, Mark(0, lines.NOTHING))
        else:
            lines.check_anchor(connection, origin, mark)
        return _Head(number, lines.receipt_at(connection, origin, number) if number else None)

    def _account(self, connection: Connection, document: Document, head: _Head) -> Account:
        """All releases under a document, brought up to the head. What is not committed is never counted."""
        with self._lock:
            name = document.origin, document.digest
            known = self._known.get(name)
            if known is None or known.number > head.number:
                known = _Known(0, Account(document))
            # All read before the first is counted: a read that breaks off must not count some of them twice.
            known.account.add(list(lines.entries(connection, document, known.number, head.number)))
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
            "engine": charging.engine,
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
        connection.execute(insert(lines.LINES).values(**line, **secret))
        heads = update(lines.HEADS).where(lines.HEADS.c.origin == made.origin)
        connection.execute(heads.values(number=made.number))
        return signed
