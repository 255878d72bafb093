"""Asking: a question is made durable, sent to all helpers at once, and shown when every receipt holds.

A question that was begun stays pending until all answers are here. The same wish, or its id, finishes it with
the same bytes: a helper that charged it answers again for nothing.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import ValidationError

from maskedlark.adserver.book import Book
from maskedlark.adserver.combining import Answered, combine
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import Connections, RemoteHelper
from maskedlark.adserver.requests import Course, Kept, Requests
from maskedlark.adserver.sending import at_once
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
from maskedlark.functions.function import Arguments, Function, Question
from maskedlark.ledger.budget import Account, Entry
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Mechanism
from maskedlark.randomness import Randomness
from maskedlark.release import messages
from maskedlark.release.messages import Answer, Request


@dataclass(frozen=True)
class Wish:
    """What a caller wants to know, before its noise is settled and an id is drawn."""

    function: Function
    arguments: Arguments
    document: Document
    datasets: tuple[bytes, ...]
    """By digest, in their order: named in another order, it is the same wish."""
    noise: float | None = None
    """The scale in units of the sensitivity; none is the document's floor."""
    epsilon: float | None = None
    """Or the most that it may cost."""

    def digest(self) -> bytes:
        """The same for the same wish; its first half, for one that may be of other datasets."""
        said = [self.function.name, self.arguments, self.noise, self.epsilon]
        asked = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
        return asked + hashlib.sha256(b"".join(self.datasets)).digest()

    def question(self) -> Question:
        """The function with its arguments. Raises what is wrong with them, before anybody is asked."""
        return self.function.ask(self.document, self.arguments)

    @property
    def mechanism(self) -> Mechanism:
        """How noise is drawn, and the least of it."""
        return self.document.mechanisms[self.function.purpose.value]


@dataclass(frozen=True, repr=False)
class _Verified:
    """A helper's share whose receipt holds."""

    answer: Answer
    receipt: ReleaseReceipt


_REFUSALS = ReleaseRefused, FieldOverflow, Expired
"""A helper that says so has charged nothing."""
_LOG = logging.getLogger(__name__)
_Outcome = _Verified | MaskedLarkError


@dataclass(frozen=True)
class Asking:
    """Where questions are asked."""

    requests: Requests
    book: Book
    connections: Connections
    clock: Clock
    rng: Randomness

    def ask(self, wish: Wish) -> Answered:
        """The answer to a wish: a pending question of the same wish is finished, and charged once."""
        wish.question()
        kept = self.requests.find(wish.digest())
        if kept is None:
            self._mention_alike(wish)
            kept = self.requests.add(self._kept(wish))
        return self.finish(kept, wish.function, wish.document)

    def request(self, wish: Wish) -> Request:
        """The question that a wish makes, with noise and a fresh id."""
        try:
            return Request(
                id=self.rng.bytes(16).hex(),
                datasets=tuple(each.hex() for each in wish.datasets),
                function=wish.function.name,
                arguments=dict(wish.arguments),
                noise=self._noise(wish),
            )
        except ValidationError as error:
            raise BadArguments("; ".join(str(fault["msg"]) for fault in error.errors())) from None

    def finish(self, kept: Kept, function: Function, document: Document) -> Answered:
        """The answer to a question that was made durable. Asks only helpers whose answer is not here."""
        if kept.state is not Course.ANSWERED:
            # Before anybody is asked: one that was refused before may be charged now.
            self.requests.reopen(kept.id)
        request = messages.decode_request(kept.body)
        question = function.ask(document, request.arguments)
        helpers = self.connections.helpers(document)
        one = partial(self._answer, kept, request, question, document, self.requests.answers(kept.id))
        outcomes = at_once([partial(_attempt, one, helper) for helper in helpers])
        self._raise_first(kept, outcomes)
        found = {
            helper.name: outcome
            for helper, outcome in zip(helpers, outcomes, strict=True)
            if isinstance(outcome, _Verified)
        }
        try:
            tables = combine(question.plans, {name: each.answer for name, each in found.items()})
        except HelpersDiffer as error:
            # One of them is wrong: when it is mended, asking again costs nothing.
            self.requests.drop_answers(kept.id)
            raise _pending(error, kept) from None
        self.requests.close(kept.id, Course.ANSWERED)
        receipts = {name: each.receipt for name, each in found.items()}
        kind = document.mechanisms[function.purpose.value].kind
        return Answered(kept.id, document, kind, request.noise, request.arguments, tables, receipts)

    def _kept(self, wish: Wish) -> Kept:
        request = self.request(wish)
        digest = wish.document.digest
        # The very bytes are kept: helpers charge their digest.
        return Kept(request.id, self.clock.now(), wish.digest(), digest, request.encode(), Course.PENDING)

    def _mention_alike(self, wish: Wish) -> None:
        """Say which pending questions differ from a new one in their datasets alone: it is charged apart."""
        alike = [each.id for each in self.requests.pending() if each.wish[:32] == wish.digest()[:32]]
        if alike:
            _LOG.warning(
                "the same question is pending over other datasets (request %s): this one is asked and "
                "charged apart; `maskedlark query --resume ID` finishes that one",
                ", ".join(alike),
            )

    def _noise(self, wish: Wish) -> float:
        floor = wish.mechanism.noise_floor
        if wish.noise is not None and wish.epsilon is not None:
            raise BadArguments("give the noise or what it may cost, not both: one follows from the other")
        if wish.epsilon is not None:
            return max(floor, self._noise_for(wish, wish.epsilon))
        noise = floor if wish.noise is None else wish.noise
        if noise < floor:
            raise NoiseTooSmall(f"noise {noise:g} is below the declared {floor:g}")
        return noise

    def _noise_for(self, wish: Wish, epsilon: float) -> float:
        """The least noise with which the question costs at most this, beside what was asked before."""
        question = wish.question()
        delta = Account(wish.document).delta(question.tag)
        count = len(question.columns)
        entries = [*self._entries(wish.document, question.tag)]
        found = []
        for dataset in wish.datasets:
            charges = [entry.charge for entry in entries if dataset in entry.datasets]
            before = [charge for charge in charges if isinstance(charge, Charge)]
            room = accountant.epsilon(before, delta) + epsilon
            try:
                found.append(accountant.noise_for(wish.mechanism.kind, count, room, delta, before))
            except NotDeclared:
                raise BadArguments(f"no noise makes {count} columns cost only ε = {epsilon:g}") from None
        return max(found)

    def _entries(self, document: Document, tag: str | None) -> Iterable[Entry]:
        """What was charged under a document, by the receipts that are kept of the first helper."""
        for signed in self.book.receipts(document.helpers[0].name):
            found = signed.claimed()
            same = found.parameters == document.digest.hex()
            if isinstance(found, ReleaseReceipt) and same and found.tag == tag:
                yield found.entry()

    def _answer(
        self,
        kept: Kept,
        request: Request,
        question: Question,
        document: Document,
        before: dict[str, bytes],
        helper: RemoteHelper,
    ) -> _Verified:
        """One helper's share: the one that is kept, or the one that it gives now; its receipt verified."""
        data = before.get(helper.name)
        if data is not None:
            return self._verified(kept, request, question, document, helper, data)
        data = helper.release(kept.body)
        found = self._verified(kept, request, question, document, helper, data)
        self.book.enter(helper, found.answer.receipt)
        self.requests.answer(kept.id, helper.name, data)
        return found

    def _verified(
        self,
        kept: Kept,
        request: Request,
        question: Question,
        document: Document,
        helper: RemoteHelper,
        data: bytes,
    ) -> _Verified:
        try:
            answer = messages.decode_answer(data)
            receipt = self.book.open(helper, document, answer.receipt)
        except MaskedLarkError as error:
            raise BadReceipt(f"{helper.name} answered with something that does not hold: {error}") from None
        if not isinstance(receipt, ReleaseReceipt):
            raise BadReceipt(f"{helper.name} gave a receipt of something else for request {kept.id}")
        mechanism = document.mechanisms["aggregate" if question.tag is None else "train"]
        for what, said, asked in (
            ("request", receipt.request, kept.id),
            ("question", receipt.question, hashlib.sha256(kept.body).hexdigest()),
            ("function", receipt.function, request.function),
            ("tag", receipt.tag, question.tag),
            ("datasets", receipt.datasets, request.datasets),
            ("mechanism", receipt.released.mechanism, mechanism.kind),
            ("noise", receipt.released.noise, request.noise),
            ("number of columns", receipt.released.columns, len(question.columns)),
        ):
            if said != asked:
                raise BadReceipt(f"{helper.name} gave a receipt of another {what} than was asked")
        return _Verified(answer, receipt)

    def _raise_first(self, kept: Kept, outcomes: Sequence[_Outcome]) -> None:
        errors = [outcome for outcome in outcomes if isinstance(outcome, MaskedLarkError)]
        if not errors:
            return
        refused = [error for error in errors if isinstance(error, _REFUSALS)]
        if len(refused) == len(outcomes):
            self.requests.close(kept.id, Course.REFUSED)
            raise refused[0]
        raise _pending((refused or errors)[0], kept)


def _pending(error: MaskedLarkError, kept: Kept) -> MaskedLarkError:
    """The error, with the way on and the way out: some helper may have charged the question already."""
    error.args = (
        f"{error}. Request {kept.id} is pending: `maskedlark query --resume {kept.id}` finishes it when all "
        "helpers answer, and charges nothing twice; `--forget` lets go of it, and what was charged stays so",
    )
    return error


def _attempt(ask: Callable[[RemoteHelper], _Verified], helper: RemoteHelper) -> _Outcome:
    """What a helper answers, or why it does not: the others are heard too."""
    try:
        return ask(helper)
    except MaskedLarkError as error:
        return error
