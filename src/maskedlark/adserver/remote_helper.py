"""A helper as the ad server's client: typed messages, signed, retried while it is unavailable."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from maskedlark.adserver.errors import HelperAway, HelpersDiffer
from maskedlark.clock import Clock
from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import HelperIdentity
from maskedlark.release.messages import MAX_ANSWER, Explanation, ReceiptPage, RecordCounts
from maskedlark.web import problem
from maskedlark.web.errors import ServiceAway, StrangeAnswer
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import API, Patience, Remote, SignedRemote, UrlQuery, new_request_id
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire.checks import CHECKS_TYPE, MAX_MESSAGE
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
    State,
)
from maskedlark.wire.signatures import SigningKey, VerifyingKey
from maskedlark.wire.steps import STEP_TYPE, Ranges, encode_ranges

MAX_RECEIPTS = 1 << 20
"""Default number read at a time: a helper must not be able to fill our memory."""
T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
_CHUNK = Patience(timeout_s=120.0, within_s=300.0)
_CHECKS = Patience(MAX_MESSAGE + problem.MAX_PROBLEM, timeout_s=120.0, within_s=300.0)
_FREEZE = Patience(timeout_s=600.0, within_s=900.0)
_LOOPBACK = "//127.0.0.1:"
_RELEASE = Patience(MAX_ANSWER, timeout_s=600.0, within_s=900.0)


@dataclass(frozen=True)
class Retries:
    """How often an unavailable helper is tried, and the wait in between, which doubles each time."""

    attempts: int = 6
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, helper: str, ask: Callable[[], T]) -> T:
        """The helper's answer. Every request is idempotent, so retrying is safe."""
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(self.first_s * 2 ** (attempt - 1))
            try:
                return ask()
            except ServiceAway as error:
                away = error
            except MaskedLarkError as error:
                error.args = (f"{helper}: {error}",)  # Name the helper, and keep the error's type and facts.
                error.is_retried = attempt > 0
                raise
        here = "; if `maskedlark simulate` had started it, start that again" if _LOOPBACK in str(away) else ""
        raise HelperAway(
            f"{helper} stays away after {self.attempts} attempts ({away}); what was done stays: "
            f"do the same again later, and it carries on{here}"
        )


class RemoteHelper:
    """One of a document's helpers. Any thread may use it."""

    def __init__(
        self, name: str, place: int, identity: VerifyingKey, remote: SignedRemote, retries: Retries
    ) -> None:
        self.name, self.place, self.identity = name, place, identity
        self._remote, self._retries = remote, retries

    def open(self, name: str, parameters: bytes, purpose: Purpose, attempt: bytes) -> State:
        """Begin a dataset, or find the one begun with this attempt."""
        wanted = NewDataset(attempt=attempt.hex(), parameters=parameters.hex(), purpose=purpose.value)
        return self._post(State.decode, _path(name), wanted.encode())

    def state(self, name: str) -> State:
        """The state of a dataset."""
        return self._ask(lambda: State.decode(self._remote.get(_path(name))))

    def chunk(self, name: str, number: int, body: bytes, attempt: bytes) -> ChunkAnswer:
        """Send a chunk. What the answer calls accepted is durable at the helper."""
        path = f"{_path(name)}/chunks/{number}"
        return self._post(ChunkAnswer.decode, path, body, CHUNK_TYPE, _query(attempt), _CHUNK)

    def checks(self, name: str, number: int, attempt: bytes) -> bytes:
        """The helper's check message of a chunk: its numbers are always the same."""
        path = f"{_path(name)}/chunks/{number}/checks"
        return self._ask(lambda: self._remote.get(path, _query(attempt), _CHECKS))

    def check(self, name: str, number: int, relayed: bytes, attempt: bytes) -> CheckAnswer:
        """Relay the check messages of all other helpers. The helper's verdict is durable there."""
        path = f"{_path(name)}/chunks/{number}/checks"
        return self._post(CheckAnswer.decode, path, relayed, CHECKS_TYPE, _query(attempt), _CHUNK)

    def freeze(self, name: str, request: FreezeRequest, attempt: bytes) -> Frozen:
        """Freeze a dataset. Idempotent."""
        path, body = f"{_path(name)}/freeze", request.encode()
        return self._post(Frozen.decode, path, body, FREEZE_TYPE, _query(attempt), _FREEZE)

    def abort(self, name: str, attempt: bytes) -> None:
        """Abort a dataset that is not frozen."""
        self._ask(lambda: self._remote.delete(_path(name), _query(attempt)))

    def release(self, body: bytes) -> bytes:
        """Ask a query. The same bytes get the same answer, and are charged once."""
        return self._post(bytes, f"{API}/releases", body, patience=_RELEASE)

    def explain(self, body: bytes) -> Explanation:
        """What a query would cost; nothing is charged."""
        return self._post(partial(_read, Explanation, "an explanation"), f"{API}/explain", body)

    def counts(self, dataset: str) -> RecordCounts:
        """How many records of each model a frozen dataset has, and which slots are free."""
        return self._ask(
            lambda: _read(RecordCounts, "a count of records", self._remote.get(f"{API}/records/{dataset}"))
        )

    def make_seed(self, dataset: str) -> bytes:
        """A dataset's shared seed, sealed by the first helper to each other one. Idempotent."""
        return self._post(bytes, f"{API}/seeds/{dataset}", b"", NO_BODY_TYPE)

    def relay_seed(self, dataset: str, message: bytes) -> None:
        """Hand over the first helper's seed."""
        self._post(bytes, f"{API}/seeds/{dataset}/message", message)

    def make_check_key(self, parameters: str) -> bytes:
        """A document's check key, sealed by the first helper to each other one: always the same key."""
        return self._post(bytes, f"{API}/check-keys/{parameters}", b"", NO_BODY_TYPE)

    def relay_check_key(self, parameters: str, message: bytes) -> None:
        """Hand over the first helper's check key."""
        self._post(bytes, f"{API}/check-keys/{parameters}/message", message)

    def open_session(self, body: bytes) -> SignedReceipt:
        """Open a session. Idempotent."""
        return self._post(receipt.decode, f"{API}/sessions", body, patience=_RELEASE)

    def step(self, session: str, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:
        """A share of a step: `size` field elements. The same bytes get the same share."""
        path = f"{API}/sessions/{session}/steps/{number}"
        query: UrlQuery = {"records": encode_ranges(chosen)} if chosen else {}
        # Even for the smallest model, a refusal must be read whole to be told from a strange answer.
        most = max(problem.MAX_PROBLEM, field.BYTES * size)
        patience = Patience(most, timeout_s=600.0, within_s=900.0)
        share = field.from_bytes(self._post(bytes, path, body, STEP_TYPE, query, patience))
        if len(share) != size:
            raise HelpersDiffer(f"{self.name} answered with {len(share)} numbers, not with {size}")
        return share

    def close_session(self, session: str) -> SignedReceipt:
        """Close a session. Idempotent."""
        path = f"{API}/sessions/{session}/close"
        return self._post(receipt.decode, path, b"", NO_BODY_TYPE, patience=_RELEASE)

    def receipts(self, origin: str, after: int, most: int) -> list[SignedReceipt]:
        """The receipts after the one of that number, at most `most`."""
        return self._ask(lambda: list(fetch_receipts(self._remote, origin, after, most)))

    def _post(
        self,
        decode: Callable[[bytes], T],
        path: str,
        body: bytes,
        media_type: str = JSON_TYPE,
        query: UrlQuery | None = None,
        patience: Patience | None = None,
    ) -> T:
        return self._ask(lambda: decode(self._remote.post(path, body, media_type, query, patience)))

    def _ask(self, ask: Callable[[], T]) -> T:
        return self._retries(self.name, ask)


@dataclass
class Connections:
    """How the ad server reaches helpers: at the addresses they publish, signing as its origin."""

    origin: str
    key: SigningKey
    parameters: ParameterClient
    clock: Clock
    http: httpx.Client = dataclass_field(default_factory=lambda: httpx.Client(follow_redirects=False))
    retries: Retries = Retries()

    def helpers(self, document: Document) -> Sequence[RemoteHelper]:
        """The helpers of a document, in its order, which is also the order of shares."""
        request_id = new_request_id()  # The same for all: it finds what belongs together in their logs.
        return [self.helper(each, place, request_id) for place, each in enumerate(document.helpers)]

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def helper(self, named: HelperIdentity, place: int = 0, request_id: str | None = None) -> RemoteHelper:
        """One helper; `place` among those of a document."""
        identity = VerifyingKey(bytes.fromhex(named.identity))
        address = self.parameters.keys(named.name, identity).address
        remote = SignedRemote(address, named.name, self.origin, self.key, self.clock, self.http, request_id)
        return RemoteHelper(named.name, place, identity, remote, self.retries)


def fetch_receipts(
    remote: Remote, origin: str, after: int = 0, most: int = MAX_RECEIPTS
) -> Iterator[SignedReceipt]:
    """An origin's public receipts after that number, at most `most`; none is verified here. Run by anyone."""
    more = True
    while more and most > 0:
        data = remote.get(f"{API}/origins/{quote(origin, safe='')}/receipts", {"after": after})
        page = _read(ReceiptPage, "a page of receipts", data)
        yield from page.receipts[:most]
        before, more, most = after, page.more, most - len(page.receipts)
        after = page.receipts[-1].claimed().number if page.receipts else before
        # A helper must not keep its reader going forever.
        if more and after <= before:
            raise StrangeAnswer("a page of receipts says that more follow, and does not go on")


def at_once(calls: Sequence[Callable[[], T]], pool: ThreadPoolExecutor | None = None) -> list[T]:
    """The results of concurrent calls. Waits for all, then raises the first error."""
    with nullcontext(pool) if pool else ThreadPoolExecutor(max(1, len(calls))) as running:
        futures = [running.submit(call) for call in calls]
        wait(futures)
    return [each.result() for each in futures]


def few_at_once(calls: Sequence[Callable[[], object]], most: int) -> None:
    """Run calls, at most `most` at a time. If one fails, those under way finish, and no other begins."""
    with ThreadPoolExecutor(most) as pool:
        done, _ = wait([pool.submit(call) for call in calls], return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
    for each in done:
        each.result()


def _read(kind: type[Model], what: str, data: bytes) -> Model:
    """A helper's JSON message, decoded."""
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        raise StrangeAnswer(f"{what} is not in the form that is known here: is this a helper?") from None


def _query(attempt: bytes) -> UrlQuery:
    """Signed with the rest: a request about an aborted dataset cannot affect the next of its name."""
    return {"attempt": attempt.hex()}


def _path(dataset: str) -> str:
    return f"{API}/datasets/{quote(dataset, safe='')}"
