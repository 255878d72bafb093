"""Release: the only way to an answer that depends on a secret. Run by a helper.

A query and a step of a session take the same path, in this order: all checks; the durable charge with its
receipt, in one transaction (a session is charged as a whole when opened, and each step can be claimed by only
one request body); the function's share; rows below k dropped; noise; a mask, so that the answer alone is
uniform. The same request gets the same bytes, for one charge: after a crash everything is computed again from
the stored seed, exactly.

Where the ad server does not know which records are used (a batch, a held-out part), the amount of work is
public, below k only noise is left, and the answer is kept and not computed twice.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from maskedlark.core import batches, field
from maskedlark.core.field import FieldArray
from maskedlark.dp import mechanisms, sampling
from maskedlark.dp.accountant import Charge
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.errors import BadArguments, Expired, FieldOverflow, ReleaseRefused
from maskedlark.functions.function import AnyFunction, Column, Function, Query, SteppedFunction, Table
from maskedlark.ledger.budget import Cost
from maskedlark.ledger.charge import QueryCharge, SessionTerms, engine
from maskedlark.ledger.errors import AnswerLost
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.ledger.sessions import Sessions
from maskedlark.parameters import randomised
from maskedlark.randomness import Randomness
from maskedlark.release import messages, shards, zero_sum
from maskedlark.release.checks import (
    Dataset,
    Scope,
    Seeds,
    check_answer,
    check_range,
    check_size,
    max_bytes,
)
from maskedlark.release.errors import OtherPurpose, UnknownFunction
from maskedlark.release.job import Job, batch_engine, query_rows
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import Answer, AnswerTable, Request, SessionRequest
from maskedlark.release.session import Session, batches_of, body_digest
from maskedlark.release.shards import Computation, Workers
from maskedlark.wire.steps import Ranges

MAX_SESSIONS = 64
"""Sessions whose networks and datasets stay in memory."""
KEPT_BYTES = 256 << 20
"""Of what sessions drew, all together, unless the one in use needs more. The others draw it again."""
F = TypeVar("F", bound=AnyFunction)


@dataclass(frozen=True, repr=False)
class CheckedQuery:
    """A query that this helper may answer, apart from the budget."""

    scope: Scope
    request: Request
    query: Query
    computed: str
    """What the same share is computed with: the function's engine, and how parts are drawn."""
    records: int
    """The public number of records: for a part, its share of all records."""

    def charge(self, body: bytes) -> QueryCharge:
        """Every column of every table is a release of its own, and they compose."""
        return QueryCharge(
            bytes.fromhex(self.request.id),
            hashlib.sha256(body).digest(),
            self.request.function,
            self.computed,
            self.query.tag,
            self.scope.digests,
            Charge(self.scope.mechanism.kind, self.request.noise, len(self.query.columns)),
            self.scope.expires,
        )


@dataclass(frozen=True)
class PricedQuery:
    """What a query would cost, from document, dataset size and ledger alone."""

    query: CheckedQuery
    cost: Cost
    noise_that_fits: float | None


class Release:
    """Answers queries, opens sessions, and answers their steps. Threads may share it."""

    def __init__(
        self,
        helper: str,
        ledger: Ledger,
        functions: Mapping[str, AnyFunction],
        seeds: Seeds,
        find: Callable[[str, bytes], Dataset],
        kept: KeptAnswers,
        engine: Workers,
        rng: Randomness,
        device: str = "cpu",
    ) -> None:
        self._helper, self._ledger, self.functions = helper, ledger, functions
        self._sessions = Sessions(ledger)
        self._seeds, self._find, self._kept = seeds, find, kept
        self._engine, self._rng, self._device = engine, rng, device
        self._lock = threading.Lock()
        self._open: dict[tuple[str, bytes], Session] = {}

    def answer(self, origin: str, body: bytes, request: Request) -> Answer:
        """A share of a query's answer. `body` is the request as it came: its digest is charged."""
        try:
            checked = self.check(origin, request)
        except (ReleaseRefused, FieldOverflow, Expired) as error:
            # Nothing is charged now. If it was before, say so: else it would be asked, and charged, anew.
            if self._ledger.is_charged(origin, bytes.fromhex(request.id), hashlib.sha256(body).digest()):
                raise AnswerLost(
                    f"request {request.id} was charged, but cannot be answered now: {error}"
                ) from None
            raise
        scope, query = checked.scope, checked.query
        charge, seeds, receipts = checked.charge(body), scope.seeds, []

        def charged() -> Callable[[int, int], bytes]:
            before = self._ledger.charge(scope.document, charge)
            receipts.append(before.receipt)
            return partial(column_seed, mechanisms.root(before.seed, seeds))

        def mask_context(columns: Sequence[FieldArray]) -> Sequence[bytes | Sequence[bytes]]:
            shape = ",".join(f"{rows}x{width}" for rows, width in (column.shape for column in columns))
            computed = checked.computed.encode()
            return scope.document.digest, scope.digests, charge.request_digest, computed, shape.encode()

        tables = self._run(
            Job(
                origin,
                charge.request,
                charge.request_digest,
                scope,
                query,
                request.noise,
                query.part is not None,
                charged,
                Computation(query),
                lambda: query_rows(query, scope, seeds, self._rng),
                mask_context,
            )
        )
        return Answer(receipts[0], tables)

    def step(self, origin: str, session_id: bytes, step: int, body: bytes, chosen: Ranges = ()) -> FieldArray:
        """A share of one step's sum."""
        session = self.session(origin, session_id)
        request, scope = session.request, session.scope
        for dataset in scope.datasets:
            self._find(origin, dataset.digest)  # It may have expired since the session was opened.
        session.check_chosen(chosen)
        # Before the step is claimed: a bad body must not use up a step.
        query = session.steps.at(body, session.shared(step))
        (column,) = query.columns
        session.check_column(column)
        growth = 1 if request.noise else randomised.growth(scope.document.trained(request.tag))
        most = request.sampling.most(scope.sizes(request.tag))
        check_range(scope.document, request.function, column, request.noise, most, growth)
        digest, seeds = body_digest(body, chosen), scope.seeds

        def claimed() -> Callable[[int, int], bytes]:
            seed = self._sessions.claim_step(origin, session_id, step, digest, session.engine, seeds)
            return lambda *_: seed

        def mask_context(columns: Sequence[FieldArray]) -> Sequence[bytes | Sequence[bytes]]:
            return (
                scope.document.digest,
                scope.digests,
                session.request_digest,
                session_id,
                session.slots(step),
                digest,
                session.computed.encode(),
                session.batches.most(step).to_bytes(8, "big"),
                sum(each.size for each in columns).to_bytes(8, "big"),
            )

        (table,) = self._run(
            Job(
                origin,
                session_id,
                hashlib.sha256(step.to_bytes(8, "big") + digest).digest(),
                scope,
                query,
                request.noise,
                True,
                claimed,
                session.computation(query),
                lambda: session.work(step, chosen).cut(scope.shards(request.tag), self._rng),
                mask_context,
            )
        )
        return table.columns[0].ravel()

    def _run(self, job: Job) -> list[AnswerTable]:
        """The pipeline: charge, compute, drop below k, noise, mask. Over hidden records it computes once."""
        if not job.is_hidden:
            # Charge first: a crash after this line wastes budget, but never hides a release.
            return self._compute(job, job.charge())
        with self._kept.room(job.origin, job.request, max_bytes(job.query, 1)) as room:
            seed_of = job.charge()
            if (before := self._kept.read(job.origin, job.request, job.asked)) is not None:
                return messages.one_row_each(job.query.schemas, field.from_bytes(before))
            tables = self._compute(job, seed_of)
            flat = field.to_bytes(messages.flat(tables))
            self._kept.write(room, job.origin, job.request, job.asked, flat, job.scope.expires)
        return tables

    def _compute(self, job: Job, seed_of: Callable[[int, int], bytes]) -> list[AnswerTable]:
        document = job.scope.document
        computation = replace(job.computation, device=self._device)
        is_step = job.is_hidden and job.query.part is None
        compute = shards.compute if is_step else shards.compute_counted
        partials = compute(self._engine, computation, job.rows())
        shares = job.query.tables(partials, document.k)
        tables = list(_noised(job, shares, seed_of))
        columns = [column for table in tables for column in table.columns]
        key, helpers = zero_sum.key(job.scope.seeds, *job.mask_context(columns)), document.helpers
        place = [each.name for each in helpers].index(self._helper)
        masked = zero_sum.masked(messages.flat(tables), key, place, len(helpers))
        widths = [[column.shape[1] for column in table.columns] for table in tables]
        return messages.cut(masked, [table.rows for table in tables], widths)

    def explain(self, origin: str, request: Request) -> PricedQuery:
        """What the answer would cost, without charging it."""
        checked = self.check(origin, request)
        return PricedQuery(checked, *self._ledger.explain(checked.scope.document, checked.charge(b"")))

    def check(self, origin: str, request: Request) -> CheckedQuery:
        """All that a query must satisfy besides the budget. Looks at no record."""
        scope = self._scope(origin, request)
        function = self._function(scope, Function)  # type: ignore[type-abstract]
        query = function.ask(scope.document, request.arguments)
        records = everybody = scope.size(query.tag)
        computed = function.engine
        if query.part is not None:
            if any(schema.by for schema in query.schemas):
                raise BadArguments("a part that is hidden has no groups: which of them are there would tell")
            records, computed = int(everybody * query.part.share), batch_engine(function)
        scope.check_noise(request.noise)
        # Not by how many records pass a filter: a refusal costs nothing, and would tell counts below k.
        check_size(scope.document, scope.function, records, 0 if query.may_lack_rows else records)
        # Of a part the most by its public share: how many are in it must not show in what is refused.
        most = everybody if query.part is None else batches.room(query.part.share, everybody)
        for column in query.columns:
            check_range(scope.document, scope.function, column, request.noise, most)
        check_answer(query, records // scope.document.k)
        return CheckedQuery(scope, request, query, computed, records)

    def open_session(self, origin: str, body: bytes, request: SessionRequest) -> SignedReceipt:
        """Charge a whole session. The same request gets the same receipt."""
        scope = self._scope(origin, request)
        function = self._function(scope, SteppedFunction)  # type: ignore[type-abstract]
        steps = function.begin(scope.document, request.tag, request.arguments)
        scope.seeds  # noqa: B018 - before it is charged: without their seeds no step is answered
        charge = QueryCharge(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            batch_engine(function),
            request.tag,
            scope.digests,
            _session_charge(request, scope, steps.allows_amplification),
            scope.expires,
            SessionTerms(request.slots, request.steps, request.sampling, body),
        )
        return self._ledger.charge(scope.document, charge).receipt

    def close_session(self, origin: str, session_id: bytes) -> SignedReceipt:
        """Close a session and refund what was not used."""
        signed = self._sessions.close(self.session(origin, session_id).scope.document, session_id)
        self._kept.remove(origin, session_id)
        self._drop(lambda name, _: name == (origin, session_id))
        return signed

    def free_slot(self, origin: str, dataset: bytes) -> int:
        """The first slot of a dataset after all reserved ones."""
        return self._sessions.free_slot(origin, dataset)

    def forget(self, now: int) -> None:
        """Drop what has expired, whose seeds must not stay in memory, and what others closed. Every hour."""
        self._drop(lambda _, session: session.scope.expires <= now)
        self._kept.expire(now)
        # Last: it reads the database, which may be away.
        with self._lock:
            names = [*self._open]
        closed = {name for name in names if self._sessions.find(*name).closed}
        self._drop(lambda name, _: name in closed)

    def _drop(self, is_over: Callable[[tuple[str, bytes], Session], bool]) -> None:
        with self._lock:
            self._open = {name: each for name, each in self._open.items() if not is_over(name, each)}

    def session(self, origin: str, session_id: bytes) -> Session:
        """All that the steps of a session need: made once, kept, and made again after a restart."""
        with self._lock:
            if (kept := self._open.pop((origin, session_id), None)) is not None:
                self._open[origin, session_id] = kept  # Move to the end (least recently used goes first).
                self._make_room()
                return kept
        made = self._session(origin, session_id)
        with self._lock:
            if len(self._open) >= MAX_SESSIONS:
                self._open.pop(next(iter(self._open)))
            made = self._open.setdefault((origin, session_id), made)
            self._make_room()
            return made

    def _make_room(self) -> None:
        """Have the sessions that were used longest ago forget what is over KEPT_BYTES. Under the lock."""
        used, *others = (each.batches for each in reversed(self._open.values()))
        room = KEPT_BYTES - used.kept_bytes
        for each in others:
            room -= each.kept_bytes
            if room < 0:
                each.forget()

    def _session(self, origin: str, session_id: bytes) -> Session:
        stored = self._sessions.find(origin, session_id)
        request = SessionRequest.decode(stored.body)
        scope = self._scope(origin, request)
        function = self._function(scope, SteppedFunction)  # type: ignore[type-abstract]
        charge = stored.opened.session_charge
        return Session(
            request,
            hashlib.sha256(stored.body).digest(),
            scope,
            function.begin(scope.document, request.tag, request.arguments),
            charge is not None and charge.rate < 1,
            batches_of(request, charge, scope.seeds, scope.sizes(request.tag)),
            batch_engine(function),
            engine(charge, batch_engine(function)),
        )

    def _scope(self, origin: str, request: Request | SessionRequest) -> Scope:
        datasets = tuple(self._find(origin, bytes.fromhex(digest)) for digest in request.datasets)
        return Scope(datasets, request.function, self._seeds)

    def _function(self, scope: Scope, of: type[F]) -> F:
        name = scope.function
        if name not in self.functions:
            raise UnknownFunction(f"no function {name!r} here; there are {', '.join(sorted(self.functions))}")
        function = self.functions[name]
        if not isinstance(function, of):
            asked = "by a query, not step by step" if isinstance(function, Function) else "step by step"
            raise UnknownFunction(f"{name} is asked {asked}")
        if function.purpose is not scope.purpose:
            raise OtherPurpose(f"{name} is over reports to {function.purpose}, not to {scope.purpose}")
        scope.mechanism  # noqa: B018 - also a session without noise needs it: its clipping follows from it
        return function


def _session_charge(request: SessionRequest, scope: Scope, may_amplify: bool) -> SessionCharge | None:
    """A session's charge; None where labels were randomised in the browser."""
    records, document, batch = scope.size(request.tag), scope.document, request.sampling.expected
    check_size(document, scope.function, records, math.ceil(batch(records)))
    if request.noise is None:
        randomised.check(document, request.tag)
        return None
    scope.check_noise(request.noise)
    law = scope.mechanism.kind, request.noise, request.steps, request.delta
    return sampling.session_charge(
        request.sampling, *law, records=records, k=document.k, may_amplify=may_amplify
    )


def _noised(job: Job, tables: Sequence[Table], seed_of: Callable[[int, int], bytes]) -> Iterator[AnswerTable]:
    """The tables without rows below k or too large, every column with its own noise."""
    for number, (schema, table) in enumerate(zip(job.query.schemas, tables, strict=True)):
        # Over hidden records every row is returned; below k they were already zeroed.
        document, sizes = job.scope.document, table.records
        shown = (sizes >= document.k) & (sizes <= document.max_records) | job.is_hidden
        kept = np.flatnonzero(shown)
        columns = []
        for place, (column, share) in enumerate(zip(schema.columns, table.shares, strict=True)):
            assert share.shape == (len(table.rows), column.width), "a function returns what it planned"
            assert len(table.rows) == 1 or not job.is_hidden, "whether a row is there would tell"
            columns.append(_with_noise(job, column, share[kept], seed_of(number, place)))
        yield AnswerTable(list(table.select_rows(kept).rows), columns)


def _with_noise(job: Job, column: Column, share: FieldArray, seed: bytes) -> FieldArray:
    if job.noise is None:
        return share
    kind = job.scope.mechanism.kind
    noise = mechanisms.draw(kind, job.noise, column.sensitivity, seed, share.size)
    return field.add(np.ascontiguousarray(share), field.from_signed(noise).reshape(share.shape))


def column_seed(seed: bytes, table: int, column: int) -> bytes:
    """A seed for every column: no two draws of one release share noise.

    Run by helpers, and by anyone auditing them with a helper's folder. `seed`: the root of its noise.
    """
    return hashlib.sha256(
        b"maskedlark v2 noise" + seed + table.to_bytes(4, "big") + column.to_bytes(4, "big")
    ).digest()
