"""Sessions in the ledger once they are charged: their steps, in order, and the close. Run by a helper.

A step is one small durable commit. Each step can be claimed by only one request body, and the noise of its
answer follows from the session's seed, the step and that body. Closing refunds the quarters not begun.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from maskedlark.dp import mechanisms, sampling
from maskedlark.dp.session_charge import ClosedSessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.ledger import rows, session_rows
from maskedlark.ledger.budget import SessionRefund
from maskedlark.ledger.errors import (
    AnswerLost,
    CannotRepeat,
    NoSuchSession,
    NoSuchStep,
    SessionClosed,
    StepOver,
    StepTaken,
)
from maskedlark.ledger.ledger import ChainTransaction, Ledger
from maskedlark.ledger.receipt import Balance, ClosedReceipt, OpenedReceipt, SignedReceipt, StillCharged
from maskedlark.ledger.session_rows import LOST, StoredSession
from maskedlark.parameters.document import Document

_LABEL = b"maskedlark v2 step noise"


@dataclass(frozen=True)
class OpenSession:
    """A session: its receipt, and its progress."""

    receipt: SignedReceipt
    opened: OpenedReceipt
    body: bytes
    """The request that opened it."""
    used: int
    """Steps claimed so far: the next has this number."""
    closed: bool


class Sessions:
    """The sessions of a ledger. Threads and processes may share it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._database = ledger, ledger.database

    def free_slot(self, origin: str, dataset: bytes) -> int:
        """The first slot of a dataset after all reserved ones."""
        with self._database.read() as connection:
            return session_rows.free_slot(connection, origin, dataset)

    def find(self, origin: str, session: bytes) -> OpenSession:
        """A session's current state."""
        with self._database.read() as connection:
            stored = session_rows.find(connection, origin, session)
            signed, opened = _opened(connection, origin, stored)
            body = session_rows.body(connection, origin, session)
        return OpenSession(signed, opened, body, stored.used, stored.closed is not None)

    def claim_step(
        self, origin: str, session: bytes, step: int, body: bytes, engine: str, shared: Sequence[bytes] = ()
    ) -> bytes:
        """Durably assign this step to the given body (a digest), and return the seed of its noise.

        It must be the next step, or the last one with the same body. Run before a step is answered. `shared`:
        the seeds of the session's datasets.
        """
        with self._database.write() as connection:
            stored = session_rows.find(connection, origin, session, lock=True)
            if stored.engine != engine:
                raise CannotRepeat(
                    f"session {session.hex()} was opened by another version ({stored.engine}): close it, "
                    "and open another"
                )
            if stored.closed == LOST:
                raise session_rows.lost(session)
            if stored.closed is not None:
                raise SessionClosed(f"session {session.hex()} is closed: no step of it is answered any more")
            if stored.seed is None:
                raise AnswerLost(f"the datasets of session {session.hex()} are gone, and its noise with them")
            if _is_next(stored, step, body):
                session_rows.assign_step(connection, origin, session, stored, body)
        return noise_seed(mechanisms.root(stored.seed, shared), step, body)

    def close(self, document: Document, session: bytes) -> SignedReceipt:
        """Close a session and refund what it did not use. Idempotent: again it returns the same receipt."""
        origin = document.origin
        self._ledger.preload_account(document)
        kept = self._kept(origin, session)
        with self._ledger.transaction(document) as chain:
            stored = session_rows.find(chain.connection, origin, session, lock=True)
            _, opened = _opened(chain.connection, origin, stored)
            if opened.parameters != document.digest.hex():
                raise NoSuchSession(f"session {session.hex()} was opened under another document")
            if stored.closed == LOST:
                raise session_rows.lost(session)
            if stored.closed is None:
                signed = self._close(chain, opened, stored, kept)
            else:
                before = rows.receipt_at(chain.connection, origin, stored.closed)
                assert before is not None, "a closing receipt is written with its session"
                signed = before
        self._ledger.advance_anchor(origin, signed)
        return signed

    def _kept(self, origin: str, session: bytes) -> StillCharged | None:
        """What would stay charged if it closed now. Outside the transaction: figures are slow."""
        session_now = self.find(origin, session)
        opened = session_now.opened
        if opened.session_charge is None:
            return None
        closed = sampling.closed(opened.sampling, opened.session_charge, session_now.used)
        adserver_epsilon(closed), coalition_epsilon(closed)
        return StillCharged(steps=closed.steps, batches=closed.batches)

    def _close(
        self, chain: ChainTransaction, opened: OpenedReceipt, stored: StoredSession, kept: StillCharged | None
    ) -> SignedReceipt:
        session, closing = bytes.fromhex(opened.request), None
        if opened.session_charge is not None and kept is not None:
            charge = opened.session_charge
            if kept.steps != charge.kept(opened.sampling.uses(stored.used)):
                # A step of a later quarter was claimed meanwhile: nothing is refunded.
                kept = StillCharged(steps=charge.steps, batches=charge.batches)
            closing = SessionRefund(session, ClosedSessionCharge(charge, kept.steps, kept.batches))
        made = ClosedReceipt(
            **chain.place(),
            request=opened.request,
            used_steps=stored.used,
            steps_digest=stored.digest.hex(),
            session_charge=opened.session_charge,
            still_charged=kept,
            balance=Balance.of(self._ledger.account(chain).cost(closing)),
        )
        session_rows.close(chain.connection, opened.origin, session, made.number)
        return chain.append(made, request_digest=stored.digest)


def noise_seed(seed: bytes, step: int, body: bytes) -> bytes:
    """The seed of one helper's noise for one step. `seed`: the session's root; `body`: its digest.

    Run by helpers, and by anyone auditing them with a helper's folder.
    """
    # The body too: were a step ever answered for a second body, its noise would not cancel out.
    return hashlib.sha256(_LABEL + seed + step.to_bytes(8, "big") + body).digest()


def _is_next(stored: StoredSession, step: int, body: bytes) -> bool:
    """Whether this is the next step, not the last one again. Raises if it is neither."""
    if not 0 <= step < stored.steps:
        raise NoSuchStep(f"the session has {stored.steps} steps, numbered from 0: there is no {step}")
    if step > stored.used:
        raise NoSuchStep(f"steps come one after the other: {stored.used} is the next, not {step}")
    if step < stored.used - 1:
        raise StepOver(f"step {step} was answered, and a later one since: its answer is not kept any more")
    if step < stored.used and stored.taken != body:
        raise StepTaken(f"step {step} was taken by another request: each is answered for one, ever")
    return step == stored.used


def _opened(
    connection: Connection, origin: str, stored: StoredSession
) -> tuple[SignedReceipt, OpenedReceipt]:
    signed = rows.receipt_at(connection, origin, stored.opened)
    assert signed is not None, "an opening receipt is written with its session"
    opened = signed.claimed()
    assert isinstance(opened, OpenedReceipt), "a session's first receipt is its opening"
    return signed, opened
