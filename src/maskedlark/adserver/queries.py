"""Asks queries: each is made durable, sent to the helpers, and shown once every receipt is verified.

The document's first helper is asked alone, and the others at once when its answer is stored here. So at the
end of a budget the first decides which of many requests fit, and these fit at the others too, in whatever
order they arrive: those have charged nothing that the first has not, and less never costs more (what a
session refunds, the first refunds last). Asked all at once, helpers would charge different requests.

A request stays pending until all answers are here. The same `QuerySpec`, or its id, finishes it with the
same bytes: a helper that charged it answers again at no cost. Run on the ad server's machine.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from pydantic import ValidationError

from maskedlark.adserver import stages
from maskedlark.adserver.combining import Answered, combine
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.query_arguments import check_cost
from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import Connections, RemoteHelper, at_once
from maskedlark.adserver.requests import Requests, RequestState, StoredRequest
from maskedlark.clock import Clock
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import (
    BadArguments,
    Expired,
    FieldOverflow,
    MaskedLarkError,
    NoiseTooSmall,
    NotDeclared,
    ReleaseRefused,
)
from maskedlark.functions.function import Arguments, Function, Query
from maskedlark.functions.sums import Sums
from maskedlark.ledger.budget import Account
from maskedlark.ledger.errors import AnswerLost, BadReceipt, BudgetExhausted, CannotRepeat
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Mechanism
from maskedlark.randomness import Randomness
from maskedlark.release import messages
from maskedlark.release.messages import Answer, Request
from maskedlark.web.errors import BodyTooLarge


@dataclass(frozen=True)
class QuerySpec:
    """What a caller asks, before its noise is set and an id is drawn."""

    function: Function
    arguments: Arguments
    document: Document
    datasets: tuple[bytes, ...]
    """Digests, sorted: naming the datasets in another order gives the same spec."""
    noise: float | None = None
    """The scale in units of the sensitivity; None is the document's floor."""
    epsilon: float | None = None
    """Alternatively, the most that it may cost."""

    def __post_init__(self) -> None:
        check_cost(self.noise, self.epsilon)
        for name, given in (("noise", self.noise), ("epsilon", self.epsilon)):
            if given is not None:
                object.__setattr__(self, name, float(given))  # 1 and 1.0 ask the same.

    def digest(self) -> bytes:
        """Equal for equal specs; the first half is also equal for specs that differ only in datasets."""
        arguments = self.function.canonical(self.arguments)
        said = [self.function.name, arguments, self.noise, self.epsilon]
        asked = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
        return asked + hashlib.sha256(b"".join(self.datasets)).digest()

    @cached_property
    def query(self) -> Query:
        """The function with its arguments. Raises if it cannot be asked, before any helper is."""
        self.mechanism  # noqa: B018 - without one no helper would answer
        return self.function.ask(self.document, self.arguments)

    @property
    def mechanism(self) -> Mechanism:
        """How noise is drawn, and its floor. Raises if the document declares none for the function."""
        return self.document.mechanism(self.function.name)


_REFUSALS = ReleaseRefused, FieldOverflow, Expired, BodyTooLarge
"""A helper that answers with one of these has charged nothing now."""
_CHARGED_BEFORE = AnswerLost, CannotRepeat
"""Refusals of what was charged at an earlier attempt."""
_LOG = logging.getLogger(__name__)
_Verified = tuple[Answer, ReleaseReceipt]
"""A helper's share and its verified receipt."""
_Verify = Callable[[RemoteHelper, bytes], _Verified]


@dataclass(frozen=True)
class Queries:
    """Queries helpers, and adds up their answers. Any thread may use it."""

    requests: Requests
    receipts: ReceiptStore
    connections: Connections
    clock: Clock
    rng: Randomness

    def ask(self, spec: QuerySpec, reuse: bool = False) -> Answered:
        """The answer to a query: a pending request of the same spec is finished, and charged once.

        `reuse`: one that was answered is shown again, from what is stored here.
        """
        stored, digest = self.stored(spec, reuse), spec.digest()
        if stored is None:
            _mention_alike(digest, self.requests.pending())
            request, parameters = self.request(spec), spec.document.digest
            state = RequestState.PENDING.value
            # Keep the exact bytes: helpers charge their digest.
            made = StoredRequest(request.id, self.clock.now(), digest, parameters, request.encode(), state)
            stored = self.requests.add(made)
        return self.finish(stored, spec)

    def stored(self, spec: QuerySpec, reuse: bool) -> StoredRequest | None:
        """The request that `ask` finishes or shows again; None if it makes one."""
        digest = spec.digest()
        pending = next((each for each in self.requests.pending() if each.spec_digest == digest), None)
        return self.requests.answered(digest) if pending is None and reuse else pending

    def request(self, spec: QuerySpec) -> Request:
        """The request for a spec, with noise and a fresh id."""
        spec.query  # noqa: B018 - raises if it is wrong, before any helper is asked
        try:
            made = Request(
                id=self.rng.bytes(16).hex(),
                datasets=tuple(each.hex() for each in spec.datasets),
                function=spec.function.name,
                arguments=dict(spec.arguments),
                noise=self._noise(spec),
            )
        except ValidationError as error:
            raise BadArguments("; ".join(str(fault["msg"]) for fault in error.errors())) from None
        # No helper reads more. Here, because it may never have come as far as one that says so.
        if (size := len(made.encode())) > messages.MAX_REQUEST:
            raise BadArguments(
                f"the request takes {size:,} bytes, and helpers read {messages.MAX_REQUEST:,}: send a "
                "smaller network, or weights of 8 bits"
            )
        return made

    def finish(self, stored: StoredRequest, spec: QuerySpec) -> Answered:
        """The answer to a durable request. Asks only helpers whose answer is not stored, the first alone."""
        request, kept = messages.Request.decode(stored.body), self.requests.answers(stored.id)
        # Before any helper is asked: later, an error would pass for a refusal.
        wanted = spec.query.schemas
        if request.arguments != spec.arguments:  # What was stored may name its values in another order.
            spec = replace(spec, arguments=request.arguments)
        schemas = spec.query.schemas
        helpers = self.connections.helpers(spec.document)
        verify = partial(self._verified, stored, request, spec)
        first, *others = [partial(self._share, stored, verify, kept.get(each.name), each) for each in helpers]
        names = [helper.name for helper in helpers]
        # Before any helper is asked: a request that was refused before may be charged now.
        self.requests.begin(stored.id)
        stages.at(f"waiting for {names[0]}, the first of {len(names)} helpers")
        verified = [self._first(stored, first)]
        stages.at(f"waiting for {' and '.join(names[1:])}; {names[0]} has answered")
        try:
            verified += at_once(others)
        except _REFUSALS as error:
            raise _pending(error, stored, _charged_by(names[0], error)) from None
        except MaskedLarkError as error:
            raise _pending(error, stored) from None
        stages.at("adding up the shares")
        try:
            answers = {name: answer for name, (answer, _) in zip(names, verified, strict=True)}
            tables = combine(schemas, answers)
        except HelpersDiffer as error:
            # A helper is wrong: once it is fixed, asking again costs nothing.
            self.requests.drop_answers(stored.id)
            raise _pending(error, stored) from None
        self.requests.mark(stored.id, RequestState.ANSWERED)
        receipts = {name: receipt for name, (_, receipt) in zip(names, verified, strict=True)}
        kind, noise = spec.mechanism.kind, request.noise
        tables = tuple(each.select(schema) for each, schema in zip(tables, wanted, strict=True))
        return Answered(stored.id, spec.document, kind, noise, request.arguments, tables, receipts)

    def _noise(self, spec: QuerySpec) -> float:
        floor = spec.mechanism.noise_floor
        if spec.epsilon is not None:
            return max(floor, self._noise_for(spec, spec.epsilon))
        noise = floor if spec.noise is None else spec.noise
        if noise < floor:
            raise NoiseTooSmall(f"noise {noise:g} is below the declared {floor:g}")
        return noise

    def _noise_for(self, spec: QuerySpec, epsilon: float) -> float:
        """The least noise with which the query costs at most this, on top of earlier queries."""
        account, tag = Account(spec.document), spec.query.tag
        delta, mixed = account.delta(tag), account.mixed
        count = len(spec.query.columns)
        receipts = self._charged(spec.document, tag)
        least = []
        for dataset in spec.datasets:
            entries = [each.entry() for each in receipts if dataset.hex() in each.datasets]
            before = [each.charge for each in entries if isinstance(each.charge, Charge)]
            room = accountant.epsilon(before, delta, mixed=mixed) + epsilon
            try:
                kind = spec.mechanism.kind
                least.append(accountant.noise_for(kind, count, room, delta, before, mixed=mixed))
            except NotDeclared:
                raise BadArguments(
                    f"no noise makes {count} columns cost only ε = {epsilon:g}. Take a larger ε"
                ) from None
        return max(least)

    def _charged(self, document: Document, tag: str | None) -> list[ReleaseReceipt]:
        """What was charged under a document, from the stored receipts of the first helper."""
        claimed = [each.claimed() for each in self.receipts.receipts(document.helpers[0].name)]
        wanted = document.digest.hex(), tag
        releases = [each for each in claimed if isinstance(each, ReleaseReceipt)]
        return [each for each in releases if (each.parameters, each.tag) == wanted]

    def _first(self, stored: StoredRequest, ask: Callable[[], _Verified]) -> _Verified:
        """The first helper's share. If it refuses all that was ever sent, nothing is charged anywhere."""
        try:
            return ask()
        except _CHARGED_BEFORE as error:
            raise _pending(error, stored) from None
        except _REFUSALS as error:
            # It has charged nothing now. But what was sent before and went unanswered, it may have.
            if not error.is_retried and self.requests.refuse(stored.id):
                raise
            raise _pending(error, stored, "It may have been charged at an earlier attempt. ") from None
        except MaskedLarkError as error:
            raise _pending(error, stored) from None

    def _share(
        self, stored: StoredRequest, verify: _Verify, kept: bytes | None, helper: RemoteHelper
    ) -> _Verified:
        """One helper's share: the stored one, or one that is verified and durable when this returns."""
        if kept is not None:
            return verify(helper, kept)
        data = helper.release(stored.body)
        answer, receipt = verify(helper, data)
        try:
            self.receipts.enter(helper, answer.receipt)
        except _REFUSALS as error:  # Not of the request, which it has charged.
            raise BadReceipt(f"{helper.name} does not show its receipts: {error}") from None
        self.requests.answer(stored.id, helper.name, data)
        return answer, receipt

    def _verified(
        self, stored: StoredRequest, request: Request, spec: QuerySpec, helper: RemoteHelper, data: bytes
    ) -> _Verified:
        try:
            answer = messages.decode_answer(data)
            receipt = self.receipts.open(helper, spec.document, answer.receipt)
        except MaskedLarkError as error:
            raise BadReceipt(f"{helper.name} answered with something that does not hold: {error}") from None
        if not isinstance(receipt, ReleaseReceipt):
            raise BadReceipt(f"{helper.name} gave a receipt of something else for request {stored.id}")
        for what, said, expected in (
            ("request", receipt.request, stored.id),
            ("request", receipt.request_digest, hashlib.sha256(stored.body).hexdigest()),
            ("function", receipt.function, request.function),
            ("tag", receipt.tag, spec.query.tag),
            ("datasets", receipt.datasets, request.datasets),
            ("mechanism", receipt.charge.mechanism, spec.mechanism.kind),
            ("noise", receipt.charge.noise, request.noise),
            ("number of columns", receipt.charge.columns, len(spec.query.columns)),
        ):
            if said != expected:
                raise BadReceipt(f"{helper.name} gave a receipt of another {what} than was asked")
        return answer, receipt


def _mention_alike(digest: bytes, pending: Sequence[StoredRequest]) -> None:
    """Log which pending requests differ from a new one only in datasets: it is charged separately."""
    alike = [each.id for each in pending if each.spec_digest[:32] == digest[:32]]
    if alike:
        _LOG.warning(
            "the same query is pending over other datasets (request %s): this one is asked and "
            "charged apart; `maskedlark query --resume ID` finishes that one",
            ", ".join(alike),
        )


def _charged_by(first: str, error: MaskedLarkError) -> str:
    """What to say when another helper refuses what the first has charged."""
    why = f"{first} has charged it already. "
    if isinstance(error, BudgetExhausted):
        why += (
            f"This helper counts charges that {first} does not (`maskedlark receipts verify` of both shows "
            "which): only closing a session that is open makes room. "
        )
    return why


def _pending(error: MaskedLarkError, stored: StoredRequest, why: str = "") -> MaskedLarkError:
    """The error, with how to resume or abandon the request. `why`: what may be charged already."""
    again, forget = f"`maskedlark query --resume {stored.id}`", "`--forget`"
    if messages.Request.decode(stored.body).function != Sums.name:
        # Only sums are shown by id; what else was asked has its own command.
        again, forget = "the same command", f"`maskedlark query --forget {stored.id}`"
    error.args = (
        f"{error}. {why}Request {stored.id} is pending: {again} finishes it when all helpers answer, and "
        f"charges nothing twice; {forget} lets go of it, and what was charged stays so",
    )
    return error
