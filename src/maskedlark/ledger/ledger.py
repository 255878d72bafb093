"""The ledger: a durable budget, charged before anything is released. Run by a helper.

It holds the helper's receipts, one chain per origin, each with a secret of the helper: the seed of its noise.
A charge is one transaction, which first checks the budget. After it, the same request always gets the same
receipt and seed, and so the same noise. An *anchor* outside the database remembers how far each chain got: a
ledger restored from an old copy is behind it, and answers nothing.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, select

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.ledger import receipt, rows, session_rows
from maskedlark.ledger.budget import Account, Cost
from maskedlark.ledger.charge import Charged, QueryCharge
from maskedlark.ledger.errors import AnswerLost, CannotRepeat
from maskedlark.ledger.receipt import (
    CheckKeyReceipt,
    FrozenReceipt,
    OpenedReceipt,
    Receipt,
    RecoveredReceipt,
    ReleaseReceipt,
    SignedCertificate,
    SignedReceipt,
)
from maskedlark.ledger.rows import ChainHead
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.wire.signatures import SigningKey

SEED_BYTES = 32
PAGE = 1000
PAGE_BYTES = 2 << 20
"""More than goes into a page over HTTP: a receipt over thousands of datasets is large."""


class Anchor(Protocol):
    """What a helper stores outside its database: the last receipt of every origin that may have left."""

    def origins(self) -> list[str]:
        """All origins that have a chain head."""

    def read(self, origin: str) -> ChainHead | None:
        """The last chain head of an origin."""

    def write(self, origin: str, head: ChainHead) -> None:
        """Durably store a chain head before returning. It never moves back."""


class Signer(Protocol):
    """What receipts are signed with now: keys are rotated."""

    helper: str

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        """The key, and its certificate by the identity."""


class _Known(NamedTuple):
    """An account, and the last receipt that it counts."""

    number: int
    account: Account


@dataclass(frozen=True)
class ChainTransaction:
    """A transaction that holds the lock of an origin's chain, at its end."""

    connection: Connection
    document: Document
    number: int
    """The last receipt's number."""
    last: SignedReceipt | None
    signer: Signer
    clock: Clock

    def place(self) -> dict[str, Any]:
        """The next receipt's helper, origin and place in the chain."""
        last = self.last.claimed().time if self.last else 0
        return {
            "helper": self.signer.helper,
            "origin": self.document.origin,
            "number": self.number + 1,
            "previous": self.last.digest.hex() if self.last else None,
            "time": max(self.clock.now(), last),  # A clock that is set back does not break the chain.
            "parameters": self.document.digest.hex(),
        }

    def append(self, made: Receipt, **secret: bytes | str | int) -> SignedReceipt:
        """Sign a receipt and write it after the last one, with the helper's secrets about it."""
        signed = receipt.sign(made, *self.signer.current(made.time))
        rows.append(self.connection, signed, **secret)
        return signed


class Ledger:
    """Durable. Threads and processes may share it: writers to one origin's chain take turns."""

    def __init__(
        self, database: Database, anchor: Anchor, signer: Signer, clock: Clock, rng: Randomness
    ) -> None:
        prepare(database, "ledger", rows.SCHEMA_VERSION, rows.TABLES)
        self.database = database
        self._anchor = anchor
        self._signer = signer
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._known: dict[tuple[str, bytes], _Known] = {}

    def charge(self, document: Document, query: QueryCharge) -> Charged:
        """The charge of this query or session: the existing one, or a new one if it fits the budget."""
        self.preload_account(document)
        if isinstance(query.charge, SessionCharge):
            # Outside the transaction: figures are slow, and others wait to write.
            adserver_epsilon(query.charge), coalition_epsilon(query.charge)
        charged, entry = None, query.entry()
        with self.transaction(document) as chain:
            charged = _before(chain.connection, document.origin, query)
            if charged is None:
                rows.refuse_closed(chain.connection, document)
                account = self.account(chain)
                if entry is None or account.fits(entry):
                    charged = self._charge(chain, query, account.cost(entry))
                else:
                    account = account.copy()
        if charged is None:  # Outside the transaction again: finding what would fit is slow.
            assert entry is not None, "what costs nothing fits"
            raise account.refusal(entry)
        # Before anything is sent: the anchor must know every receipt that left.
        self.advance_anchor(document.origin, charged.receipt)
        return charged

    def is_charged(self, origin: str, request: bytes, digest: bytes) -> bool:
        """Whether a request was charged before. Refuses another one under its id."""
        with self.database.read() as connection:
            return rows.find(connection, origin, request, digest) is not None

    def _charge(self, chain: ChainTransaction, query: QueryCharge, cost: Cost) -> Charged:
        """Receipt, seed and slots, all in this transaction."""
        made, terms, seed = query.receipt(chain.place(), cost), query.session, self._rng.bytes(SEED_BYTES)
        if terms is not None:
            here = chain.connection, made.origin
            session_rows.reserve(*here, query.datasets, terms.slots, terms.steps)
            session_rows.add(*here, query.request, made.number, terms.steps, terms.body)
        signed = chain.append(
            made,
            request=query.request,
            request_digest=query.request_digest,
            seed=seed,
            engine=query.engine,
            expires=query.expires,
        )
        return Charged(signed, seed)

    def explain(self, document: Document, query: QueryCharge) -> tuple[Cost, float | None]:
        """What a query would cost now, and the least noise with which it would fit. Charges nothing."""
        self.preload_account(document)
        entry = query.entry()
        assert entry is not None, "there is nothing to explain where nothing is charged"
        with self.transaction(document) as chain:
            rows.refuse_closed(chain.connection, document)
            account = self.account(chain).copy()
        return account.cost(entry), account.noise_that_fits(entry)

    def preload_account(self, document: Document) -> None:
        """Compute what sessions have cost while nobody waits: after a start that is slow."""
        name = document.origin, document.digest
        if name in self._known:
            return
        with self.database.read() as connection:
            end = rows.end(connection, document.origin)
            entries = list(rows.entries(connection, document, 0, end.number))
        account = Account(document)
        account.add(entries)
        account.spent()
        with self._lock:
            self._known.setdefault(name, _Known(end.number, account))

    @contextmanager
    def transaction(self, document: Document) -> Iterator[ChainTransaction]:
        """Exclusive access to the origin's chain; what is written is durable when the block ends."""
        with self.database.write() as connection:
            yield self._locked(connection, document)

    def account(self, chain: ChainTransaction) -> Account:
        """All that was charged under a document until now. Only committed charges count."""
        document, number = chain.document, chain.number
        with self._lock:
            name = document.origin, document.digest
            known = self._known.get(name)
            if known is None or known.number > number:
                known = _Known(0, Account(document))
            # Read all before counting any: an interrupted read must not count some of them twice.
            known.account.add(list(rows.entries(chain.connection, document, known.number, number)))
            self._known[name] = _Known(number, known.account)
            return known.account

    def pin(self, document: Document, digest: bytes) -> bytes:
        """Pin the digest of a document's check key, for good, unless one is; returns the pinned one."""
        with self.transaction(document) as chain:
            signed = rows.check_key(chain.connection, document)
            if signed is None:
                # Where receipts are lost for good, a pin may be among them.
                rows.refuse_closed(chain.connection, document)
                made = CheckKeyReceipt(**chain.place(), key_digest=digest.hex())
                signed = chain.append(made, request=document.digest)
        return self._pinned(signed)

    def pinned(self, document: Document) -> bytes | None:
        """The digest of a document's check key; None if none was pinned."""
        head = self._anchor.read(document.origin)
        with self.database.read() as connection:
            # An old copy may lack the pin, and must not be given another.
            rows.check_anchor(connection, document.origin, head)
            signed = rows.check_key(connection, document)
        return None if signed is None else self._pinned(signed)

    def _pinned(self, signed: SignedReceipt) -> bytes:
        """Before any number that follows from the key leaves, every time: the anchor must know the pin."""
        made = signed.claimed()
        assert isinstance(made, CheckKeyReceipt), "only check keys are named by a document's digest"
        self.advance_anchor(made.origin, signed)
        return bytes.fromhex(made.key_digest)

    def freeze(
        self,
        connection: Connection,
        document: Document,
        purpose: Purpose,
        dataset: bytes,
        records: int,
        invalid: int | None = None,
    ) -> SignedReceipt:
        """Record that a dataset is frozen, in the transaction that freezes it. Call `advance_anchor` next."""
        chain = self._locked(connection, document)
        return chain.append(
            FrozenReceipt(
                **chain.place(),
                purpose=purpose.value,
                dataset=dataset.hex(),
                records=records,
                invalid=invalid,
            )
        )

    def advance_anchor(self, origin: str, signed: SignedReceipt) -> None:
        """Anchor a durable receipt, before it leaves."""
        with self._lock:
            head = ChainHead(signed.claimed().number, signed.digest)
            before = self._anchor.read(origin)
            if before is None or before.number < head.number:
                self._anchor.write(origin, head)

    def receipts(self, origin: str, after: int = 0) -> list[SignedReceipt]:
        """The next page of an origin's chain, after the receipt of that number.

        Only what the anchor knows: a receipt that was seen outside must never be remade differently.
        """
        head = self._anchor.read(origin)
        with self.database.read() as connection:
            return rows.receipts(connection, origin, after, head.number if head else 0, PAGE, PAGE_BYTES)

    def check(self) -> None:
        """Return if no origin's chain is behind its anchor; raise if one is. Run at the start."""
        with self.database.read() as connection:
            rows.refuse_copy(connection)
        for origin in sorted({*self._anchor.origins(), *self.origins()}):
            head = self._anchor.read(origin)
            with self.database.read() as connection:
                rows.check_anchor(connection, origin, head)

    def reset_anchors(self) -> list[str]:
        """Anchor every chain where it ends: for an operator who lost the anchor, not the ledger."""
        with self.database.read() as connection:
            rows.refuse_copy(connection)
        origins = self.origins()
        for origin in origins:
            with self.database.read() as connection:
                end = rows.end(connection, origin)
            self._anchor.write(origin, end)
        return origins

    def forget(self, now: int) -> None:
        """Delete the noise seeds of answers over expired datasets. Run every hour."""
        with self.database.write() as connection:
            rows.expire(connection, now)

    def restore_receipts(self, connection: Connection, origin: str, lost: Sequence[SignedReceipt]) -> None:
        """Append receipts of ours that were lost and then supplied; slots stay taken. Run by a recovery."""
        self.database.insert_new(connection, rows.HEADS, [(origin, 0)])
        for signed in lost:
            rows.put_back(connection, signed)
            if isinstance(made := signed.claimed(), OpenedReceipt):
                datasets = [bytes.fromhex(dataset) for dataset in made.datasets]
                session_rows.reserve(connection, made.origin, datasets, made.slots, made.steps)

    def close(self, connection: Connection, document: Document, before: ChainHead) -> SignedReceipt:
        """Continue after lost receipts: what they may have cost counts as spent. Run by a recovery.

        `before` is the last receipt known to have been signed; `document` the origin's newest.
        """
        self.database.insert_new(connection, rows.HEADS, [(document.origin, 0)])
        kept = rows.end(connection, document.origin)
        last = rows.receipt_at(connection, document.origin, kept.number)
        chain = ChainTransaction(connection, document, kept.number, last, self._signer, self._clock)
        place = chain.place()
        place |= {"number": before.number + 1, "previous": before.digest.hex() if before.number else None}
        digest = kept.digest.hex() if kept.number else None
        rows.close(connection, document)
        return chain.append(RecoveredReceipt(**place, last_kept=kept.number, last_kept_digest=digest))

    def origins(self) -> list[str]:
        """All origins that have a chain."""
        with self.database.read() as connection:
            return list(connection.scalars(select(rows.HEADS.c.origin)))

    def _locked(self, connection: Connection, document: Document) -> ChainTransaction:
        """The end of an origin's chain, locked: nobody else writes until the transaction ends."""
        origin = document.origin
        self.database.insert_new(connection, rows.HEADS, [(origin, 0)])
        query = select(rows.HEADS.c.number).where(rows.HEADS.c.origin == origin).with_for_update()
        number = connection.execute(query).scalar_one()
        head = self._anchor.read(origin)
        if number == 0 and head is None:
            # Before the first receipt: from then on, a chain without an anchor has lost it.
            self._anchor.write(origin, ChainHead(0, rows.NOTHING))
        else:
            rows.check_anchor(connection, origin, head)
        last = rows.receipt_at(connection, origin, number) if number else None
        return ChainTransaction(connection, document, number, last, self._signer, self._clock)


def _before(connection: Connection, origin: str, query: QueryCharge) -> Charged | None:
    """What was charged under this id before. Refuses another query, and what cannot be made again."""
    row, name = rows.find(connection, origin, query.request, query.request_digest), query.request.hex()
    if row is None:
        return None
    if row.seed is None and query.session:
        raise session_rows.lost(query.request)
    if row.seed is None:
        raise AnswerLost(
            f"request {name} was answered and charged, but its noise was lost since: ask anew under "
            "another id, which is charged again"
        )
    signed = receipt.decode(row.receipt)
    before = signed.claimed()
    assert isinstance(before, ReleaseReceipt | OpenedReceipt), "only queries and sessions have a request"
    # Old noise under a new answer would cancel out against the old one. For sessions, each step checks this.
    if not query.session and (row.engine != query.engine or before.entry() != query.entry()):
        raise CannotRepeat(
            f"request {name} was answered by another version ({row.engine}), whose answer cannot be made "
            "again: ask anew under another id"
        )
    return Charged(signed, row.seed)
