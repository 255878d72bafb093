"""Sessions in the ledger: opened for all their steps at once, a slot a step, closed. Run by a helper.

Opening reserves the whole course in one transaction: budget, slots, receipt. A step is then one small durable
commit, one step after the other: it is taken by one body, ever, and the noise of its answer follows from the
session's seed, the step and that body. Closing gives back what the quarters that were not begun would have
cost.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from maskedlark.dp import mechanisms, sampling
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import Closed, Course, adserver_epsilon, coalition_epsilon
from maskedlark.ledger import lines, recovered, slots
from maskedlark.ledger.budget import Closing, Entry
from maskedlark.ledger.errors import (
    CannotRepeat,
    NoSuchSession,
    NoSuchStep,
    SessionClosed,
    SessionLost,
    StepOver,
    StepTaken,
)
from maskedlark.ledger.ledger import SEED_BYTES, Ledger, Turn
from maskedlark.ledger.receipt import Balance, ClosedReceipt, Kept, OpenedReceipt, Reserved, SignedReceipt
from maskedlark.ledger.slots import LOST, Stored
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database

_LABEL = b"maskedlark v1 step noise"


@dataclass(frozen=True)
class Opening:
    """A session to be opened: checked in every other way already."""

    request: bytes
    question: bytes
    """The digest of the request's bytes."""
    function: str
    computed: str
    """The function's engine."""
    tag: str
    datasets: tuple[bytes, ...]
    slots: tuple[int, ...]
    """Of its first step, in every dataset."""
    steps: int
    sampling: Sampling
    course: Course | None
    """None where labels were randomised in the browser: nothing is charged."""
    body: bytes
    """The request's bytes, kept: steps are answered by it."""
    expires: int
    """When the first of the datasets is gone."""

    @property
    def engine(self) -> str:
        """What the same answers are made with."""
        return engine(self.course, self.computed)

    def entry(self) -> Entry | None:
        """As the budget sees it."""
        if self.course is None:
            return None
        return Entry(self.tag, self.datasets, self.course, self.request)


def engine(course: Course | None, computed: str) -> str:
    """What the same answers are made with: another engine must not answer a step again."""
    noise = mechanisms.engine(course.kind) if course else "no noise"
    return f"{noise}; {computed}"


@dataclass(frozen=True)
class SessionLine:
    """A session: its receipt, and how far it got."""

    receipt: SignedReceipt
    opened: OpenedReceipt
    body: bytes
    """The request that opened it."""
    used: int
    """Steps that were taken: the next has this number."""
    closed: bool


class Sessions:
    """The sessions of a ledger. Threads and processes may share it."""

    def __init__(self, database: Database, ledger: Ledger, rng: Randomness) -> None:
        self._database, self._ledger, self._rng = database, ledger, rng

    def open(self, document: Document, opening: Opening) -> SessionLine:
        """The session of this request: the one that is there, or a new one if the budget allows it."""
        self._ledger.warm(document)
        if opening.course is not None:
            assert opening.course.steps == opening.sampling.uses(opening.steps), "a course is its sampling's"
            # Out here: figures take a while, and others wait to write.
            adserver_epsilon(opening.course), coalition_epsilon(opening.course)
        self._ledger.remember(document.origin, self._opened(document, opening))
        return self.find(document.origin, opening.request)

    def _opened(self, document: Document, opening: Opening) -> SignedReceipt:
        with self._ledger.turn(document) as turn:
            signed = _signed(turn.connection, document.origin, opening)
            if signed is not None:
                return signed
            recovered.refuse_closed(turn.connection, document)
            entry = opening.entry()
            if entry is None or turn.account.fits(entry):
                return self._open(turn, opening, entry)
            account = turn.account.copy()
        raise account.refusal(entry)

    def _open(self, turn: Turn, opening: Opening, entry: Entry | None) -> SignedReceipt:
        origin = turn.document.origin
        slots.reserve(turn.connection, origin, opening.datasets, opening.slots, opening.steps)
        made = OpenedReceipt(
            **turn.place(),
            request=opening.request.hex(),
            question=opening.question.hex(),
            function=opening.function,
            tag=opening.tag,
            datasets=tuple(dataset.hex() for dataset in opening.datasets),
            slots=opening.slots,
            steps=opening.steps,
            sampling=opening.sampling,
            course=Reserved.of(opening.course) if opening.course else None,
            balance=Balance.of(turn.account.cost(entry)),
        )
        seed = self._rng.bytes(SEED_BYTES)
        stored = Stored(made.number, None, opening.steps, seed, opening.engine, opening.expires)
        slots.add(turn.connection, origin, opening.request, stored, opening.body)
        return turn.append(made, request=opening.request, question=opening.question)

    def free_slot(self, origin: str, dataset: bytes) -> int:
        """The first slot of a dataset after all that sessions have."""
        with self._database.read() as connection:
            return slots.following(connection, origin, [dataset])[0]

    def find(self, origin: str, session: bytes) -> SessionLine:
        """A session, as it is now."""
        with self._database.read() as connection:
            return _line(connection, origin, session)

    def take(
        self, origin: str, session: bytes, step: int, body: bytes, engine: str, shared: Sequence[bytes] = ()
    ) -> bytes:
        """Let a step be this body's, durably, and return the seed of its noise. `body` is a digest.

        The next step, or the last one again by the same body. Run before a step is answered. `shared`: the
        seeds of the session's datasets.
        """
        with self._database.write() as connection:
            stored = slots.find(connection, origin, session, "alone")
            if stored.engine != engine:
                raise CannotRepeat(
                    f"session {session.hex()} was opened by another version ({stored.engine}): close it, "
                    "and open another"
                )
            if stored.closed is not None:
                raise SessionClosed(f"session {session.hex()} is closed: no step of it is answered any more")
            if _is_next(stored, step, body):
                slots.take(connection, origin, session, stored, body)
        return noise_seed(mechanisms.root(stored.seed, shared), step, body)

    def close(self, document: Document, session: bytes) -> SignedReceipt:
        """Close a session and give back what it did not use. Again: the same receipt."""
        origin = document.origin
        self._ledger.warm(document)
        kept = self._kept(origin, session)
        with self._ledger.turn(document) as turn:
            stored = slots.find(turn.connection, origin, session, "alone")
            _, opened = _opened(turn.connection, origin, stored)
            if opened.parameters != document.digest.hex():
                raise NoSuchSession(f"session {session.hex()} was opened under another document")
            if stored.closed == LOST:
                raise SessionLost(f"session {session.hex()} was lost, and counts whole")
            if stored.closed is None:
                signed = self._close(turn, opened, stored, kept)
            else:
                found = lines.receipt_at(turn.connection, origin, stored.closed)
                assert found is not None, "a closing receipt is written with its mark"
                signed = found
        self._ledger.remember(origin, signed)
        return signed

    def _kept(self, origin: str, session: bytes) -> Kept | None:
        """What would be kept of a session now. Out of the turn: figures take a while."""
        line = self.find(origin, session)
        if line.opened.course is None:
            return None
        closed = sampling.closed(line.opened.sampling, line.opened.course.course(), line.used)
        adserver_epsilon(closed), coalition_epsilon(closed)
        return Kept(steps=closed.steps, batches=closed.batches)

    def _close(self, turn: Turn, opened: OpenedReceipt, stored: Stored, kept: Kept | None) -> SignedReceipt:
        session, closing = bytes.fromhex(opened.request), None
        if opened.course is not None and kept is not None:
            course = opened.course.course()
            if kept.steps != course.kept(opened.sampling.uses(stored.used)):
                # A step of a later quarter was taken meanwhile: nothing is given back.
                kept = Kept(steps=course.steps, batches=course.batches)
            closing = Closing(session, Closed(course, kept.steps, kept.batches))
        made = ClosedReceipt(
            **turn.place(),
            request=opened.request,
            used=stored.used,
            digest=stored.digest.hex(),
            course=opened.course,
            kept=kept,
            balance=Balance.of(turn.account.cost(closing)),
        )
        slots.close(turn.connection, opened.origin, session, made.number)
        return turn.append(made, question=bytes.fromhex(made.digest))


def noise_seed(seed: bytes, step: int, body: bytes) -> bytes:
    """What one helper's noise of one step follows from. `seed`: the session's root; `body`: its digest.

    Run by helpers, and by who audits them with a helper's folder.
    """
    # The body too: were a step ever answered for a second body, its noise would not cancel out.
    return hashlib.sha256(_LABEL + seed + step.to_bytes(8, "big") + body).digest()


def _is_next(stored: Stored, step: int, body: bytes) -> bool:
    """Whether this is the next step; no if it is the last one again. Raises if it is neither."""
    if not 0 <= step < stored.steps:
        raise NoSuchStep(f"the session has {stored.steps} steps, numbered from 0: there is no {step}")
    if step > stored.used:
        raise NoSuchStep(f"steps come one after the other: {stored.used} is the next, not {step}")
    if step < stored.used - 1:
        raise StepOver(f"step {step} was answered, and a later one since: its answer is not kept any more")
    if step < stored.used and stored.taken != body:
        raise StepTaken(f"step {step} was taken by another request: each is answered for one, ever")
    return step == stored.used


def _signed(connection: Connection, origin: str, opening: Opening) -> SignedReceipt | None:
    """The receipt of a session that was opened before. Refuses another request under its id."""
    found = lines.asked(connection, origin, opening.request, opening.question)
    if found is None:
        return None
    if not slots.is_here(connection, origin, opening.request):
        raise SessionLost(
            f"session {opening.request.hex()} was opened and charged, but its steps were lost since: open "
            "another under another id, which is charged again"
        )
    return found


def _line(connection: Connection, origin: str, session: bytes) -> SessionLine:
    stored = slots.find(connection, origin, session)
    signed, opened = _opened(connection, origin, stored)
    body = slots.body(connection, origin, session)
    return SessionLine(signed, opened, body, stored.used, stored.closed is not None)


def _opened(connection: Connection, origin: str, stored: Stored) -> tuple[SignedReceipt, OpenedReceipt]:
    signed = lines.receipt_at(connection, origin, stored.opened)
    assert signed is not None, "an opening receipt is written with its session"
    opened = signed.claimed()
    assert isinstance(opened, OpenedReceipt), "a session's line is its opening"
    return signed, opened
