"""The ledger: a durable budget, charged before anything is released. Run by a helper.

Its lines are the helper's receipts, one chain an origin, each with what only the helper may know: the seed of
its noise. A line is written in one transaction, which first checks the budget; once it is there, the same
request always gets the same line, and so the same noise. An *anchor* outside the database remembers how far
the chain got: a ledger that was put back from an old copy is behind it, and answers nothing.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, select

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.ledger import lines, receipt, recovered, slots
from maskedlark.ledger.budget import Account, Cost, Entry
from maskedlark.ledger.lines import Charging, Line, Mark
from maskedlark.ledger.receipt import (
    Balance,
    OpenedReceipt,
    Receipt,
    RecoveredReceipt,
    Released,
    ReleaseReceipt,
    SealedReceipt,
    SignedCertificate,
    SignedReceipt,
)
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.wire.signatures import SigningKey

SCHEMA_VERSION = 2
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


@dataclass(frozen=True)
class Turn:
    """A transaction that holds the lock of an origin's chain, at its end. Run by sessions."""

    connection: Connection
    document: Document
    account: Account
    """Everything that is charged, at this moment."""
    place: Callable[[], dict[str, Any]]
    """What the next receipt says of itself and of its place in the chain."""
    append: Callable[..., SignedReceipt]
    """Sign a receipt and write it behind the last one, with its line's `request` and `question`."""


class Ledger:
    """Durable, and safe to share: threads and processes that write to one origin's chain take turns."""

    def __init__(
        self, database: Database, anchor: Anchor, signer: Signer, clock: Clock, rng: Randomness
    ) -> None:
        prepare(database, "ledger", SCHEMA_VERSION, lines.TABLES)
        prepare(database, "sessions", slots.SCHEMA_VERSION, slots.TABLES)
        prepare(database, "recovered ledger", recovered.SCHEMA_VERSION, recovered.TABLES)
        self._database = database
        self._anchor = anchor
        self._signer = signer
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._known: dict[tuple[str, bytes], _Known] = {}

    def charge(self, document: Document, charging: Charging) -> Line:
        """The line of this question: the one that is there, or a new one if the budget allows it."""
        self.warm(document)
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            line = lines.find(connection, document.origin, charging)
            if line is None:
                recovered.refuse_closed(connection, document)
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
        self.warm(document)
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            recovered.refuse_closed(connection, document)
            account = self._account(connection, document, head).copy()
        return account.cost(entry), account.noise_that_fits(entry)

    def warm(self, document: Document) -> None:
        """Compute what courses have cost, where nobody waits: after a start a figure takes a while."""
        name = document.origin, document.digest
        if name in self._known:
            return
        with self._database.read() as connection:
            end = lines.end(connection, document.origin)
            found = list(lines.entries(connection, document, 0, end.number))
        account = Account(document)
        account.add(found)
        account.spent()
        with self._lock:
            self._known.setdefault(name, _Known(end.number, account))

    @contextmanager
    def turn(self, document: Document) -> Iterator[Turn]:
        """The origin's chain for one writer alone; what it writes is durable when the block ends."""
        with self._database.write() as connection:
            head = self._head(connection, document.origin)
            account = self._account(connection, document, head)
            place = partial(self._place, document, head)
            yield Turn(connection, document, account, place, partial(self._append, connection))

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
        return self._append(connection, made)

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
        with self._database.read() as connection:
            recovered.refuse_copy(connection)
        for origin in sorted({*self._anchor.origins(), *self.origins()}):
            mark = self._anchor.read(origin)
            with self._database.read() as connection:
                lines.check_anchor(connection, origin, mark)

    def accept(self) -> list[str]:
        """Anchor every chain where it stands: for an operator who lost the anchor, not the ledger."""
        with self._database.read() as connection:
            recovered.refuse_copy(connection)
        origins = self.origins()
        for origin in origins:
            with self._database.read() as connection:
                end = lines.end(connection, origin)
            self._anchor.write(origin, end)
        return origins

    def forget(self, now: int) -> None:
        """Delete the seeds of noise of answers over datasets that have expired. Run every hour."""
        with self._database.write() as connection:
            lines.expire(connection, now)
            slots.expire(connection, now)

    def put_back(self, connection: Connection, origin: str, found: Sequence[SignedReceipt]) -> None:
        """Write receipts of ours, which were lost and handed in, behind the last one. Run by a recovery."""
        self._database.insert_new(connection, lines.HEADS, [(origin, 0)])
        for signed in found:
            lines.put_back(connection, signed)
            if isinstance(made := signed.claimed(), OpenedReceipt):
                slots.put_back(connection, made)

    def close(self, connection: Connection, document: Document, before: Mark) -> SignedReceipt:
        """Go on behind receipts that are lost: what they may have cost counts as spent. Run by a recovery.

        `before` is the last receipt that is known to have been signed; `document` the origin's newest.
        """
        self._database.insert_new(connection, lines.HEADS, [(document.origin, 0)])
        kept = lines.end(connection, document.origin)
        last = lines.receipt_at(connection, document.origin, kept.number)
        place = self._place(document, _Head(kept.number, last))
        place |= {"number": before.number + 1, "previous": before.digest.hex() if before.number else None}
        digest = kept.digest.hex() if kept.number else None
        made = RecoveredReceipt(**place, kept=kept.number, kept_digest=digest)
        recovered.close(connection, document)
        return self._append(connection, made)

    def origins(self) -> list[str]:
        """All origins that have a chain."""
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
        secret: dict[str, bytes | str | int] = {
            "request": charging.request,
            "question": charging.question,
            "seed": seed,
            "engine": charging.engine,
            "expires": charging.expires,
        }
        return Line(self._append(connection, made, **secret), seed)

    def _append(self, connection: Connection, made: Receipt, **secret: bytes | str | int) -> SignedReceipt:
        key, certificate = self._signer.current(made.time)
        signed = receipt.sign(made, key, certificate)
        lines.append(connection, signed, **secret)
        return signed
