"""A helper, as the ad server talks to it: typed messages, signed, tried again while it is away."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar
from urllib.parse import quote

import httpx
from pydantic import Field, ValidationError

from maskedlark.adserver import receipt_pages
from maskedlark.adserver.errors import HelperAway, HelpersDiffer
from maskedlark.clock import Clock
from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import MOST_NUMBER, HelperIdentity, Name, Settings
from maskedlark.release import messages
from maskedlark.web import problem
from maskedlark.web.errors import ServiceAway, StrangeAnswer
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Patience, Query, SignedRemote
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    JSON_TYPE,
    SEAL_TYPE,
    ChunkAnswer,
    Opening,
    Sealed,
    Sealing,
    State,
)
from maskedlark.wire.signatures import SigningKey, VerifyingKey
from maskedlark.wire.steps import STEP_TYPE, Ranges, encode_ranges

T = TypeVar("T")
_CHUNK = Patience(timeout_s=120.0, within_s=300.0)
_SEAL = Patience(timeout_s=600.0, within_s=900.0)
_RELEASE = Patience(messages.MOST_ANSWER, timeout_s=600.0, within_s=900.0)


@dataclass(frozen=True)
class Retries:
    """How often a helper that is away is tried, and how long in between: twice as long every time."""

    attempts: int = 6
    first_s: float = 0.5
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, helper: str, ask: Callable[[], T]) -> T:
        """What it answers at last. Every request is one that a helper may get twice."""
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(self.first_s * 2 ** (attempt - 1))
            try:
                return ask()
            except ServiceAway as error:
                away = error
            except MaskedLarkError as error:
                error.args = (f"{helper}: {error}",)  # Whose word it is, with its type and facts as they are.
                raise
        raise HelperAway(
            f"{helper} stays away after {self.attempts} attempts ({away}); what was done stays: "
            "do the same again later, and it carries on"
        )


class Counts(Settings):
    """What a helper says of a sealed dataset."""

    records: dict[Name, Annotated[int, Field(ge=0, le=MOST_NUMBER)]]
    """By model."""
    free_slot: Annotated[int, Field(ge=0, le=MOST_NUMBER)]
    """The first slot after all that sessions have."""


class RemoteHelper:
    """One of a document's helpers. Any thread may use it."""

    def __init__(
        self, name: str, place: int, identity: VerifyingKey, remote: SignedRemote, retries: Retries
    ) -> None:
        self.name = name
        self.place = place
        self.identity = identity
        self._remote = remote
        self._retries = retries

    def open(self, name: str, parameters: bytes, purpose: Purpose, opening: bytes) -> State:
        """Begin a dataset, or find the one that was begun by this opening."""
        wanted = Opening(opening=opening.hex(), parameters=parameters.hex(), purpose=purpose.value)
        body = wanted.encode()
        return self._ask(lambda: State.decode(self._remote.post(_path(name), body, JSON_TYPE)))

    def state(self, name: str) -> State:
        """Where a dataset stands."""
        return self._ask(lambda: State.decode(self._remote.get(_path(name))))

    def chunk(self, name: str, number: int, body: bytes, opening: bytes) -> ChunkAnswer:
        """Send a chunk. What the answer says was accepted is durable at the helper."""
        path, query = f"{_path(name)}/chunks/{number}", _query(opening)
        return self._ask(
            lambda: ChunkAnswer.decode(self._remote.post(path, body, CHUNK_TYPE, query, patience=_CHUNK))
        )

    def seal(self, name: str, sealing: Sealing, opening: bytes) -> Sealed:
        """Seal a dataset, or hear again how it was sealed."""
        path, body, query = f"{_path(name)}/seal", sealing.encode(), _query(opening)
        return self._ask(
            lambda: Sealed.decode(self._remote.post(path, body, SEAL_TYPE, query, patience=_SEAL))
        )

    def abort(self, name: str, opening: bytes) -> None:
        """Take an unsealed dataset back."""
        self._ask(lambda: self._remote.delete(_path(name), _query(opening)))

    def release(self, body: bytes) -> bytes:
        """Ask a question. The same bytes get the same answer, and are charged once."""
        return self._ask(lambda: self._remote.post("/v1/releases", body, JSON_TYPE, patience=_RELEASE))

    def explain(self, body: bytes) -> bytes:
        """What a question would cost; nothing is charged."""
        return self._ask(lambda: self._remote.post("/v1/explain", body, JSON_TYPE))

    def counts(self, dataset: str) -> Counts:
        """How many records of each model a sealed dataset has, and which slots are free."""
        return self._ask(lambda: _counted(self._remote.get(f"/v1/records/{dataset}")))

    def make_seed(self, dataset: str) -> bytes:
        """The seed that a dataset's helpers share, sealed to each by the first. Always the same."""
        return self._ask(lambda: self._remote.post(f"/v1/seeds/{dataset}", b"", NO_BODY_TYPE))

    def take_seed(self, dataset: str, message: bytes) -> None:
        """Relay the first helper's seed."""
        self._ask(lambda: self._remote.post(f"/v1/seeds/{dataset}/message", message, JSON_TYPE))

    def open_session(self, body: bytes) -> bytes:
        """Open a session, or hear again that it is open."""
        return self._ask(lambda: self._remote.post("/v1/sessions", body, JSON_TYPE, patience=_RELEASE))

    def step(self, session: str, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:
        """A share of a step: so many field elements. The same bytes get the same share."""
        path = f"/v1/sessions/{session}/steps/{number}"
        query: Query = {"records": encode_ranges(chosen)} if chosen else {}
        # Also of the smallest model: a refusal has to be read whole to be told from a strange answer.
        most = max(problem.MOST_PROBLEM, field.BYTES * size)
        patience = Patience(most, timeout_s=600.0, within_s=900.0)
        share = field.from_bytes(
            self._ask(lambda: self._remote.post(path, body, STEP_TYPE, query, patience=patience))
        )
        if len(share) != size:
            raise HelpersDiffer(f"{self.name} answered with {len(share)} numbers, not with {size}")
        return share

    def close_session(self, session: str) -> bytes:
        """Close a session, or hear again how it was closed."""
        path = f"/v1/sessions/{session}/close"
        return self._ask(lambda: self._remote.post(path, b"", NO_BODY_TYPE, patience=_RELEASE))

    def receipts(self, origin: str, after: int, most: int) -> list[SignedReceipt]:
        """The receipts behind the one of that number, so many at most."""
        return self._ask(lambda: list(receipt_pages.fetch(self._remote, origin, after, most)))

    def _ask(self, ask: Callable[[], T]) -> T:
        return self._retries(self.name, ask)


@dataclass(frozen=True)
class Connections:
    """How the ad server reaches helpers: it signs as its origin, at the addresses that they publish."""

    origin: str
    key: SigningKey
    parameters: ParameterClient
    clock: Clock
    http: httpx.Client
    retries: Retries

    def helpers(self, document: Document) -> list[RemoteHelper]:
        """The helpers of a document, in its order: a helper's place is its share's."""
        return [self._helper(place, each) for place, each in enumerate(document.helpers)]

    def _helper(self, place: int, named: HelperIdentity) -> RemoteHelper:
        identity = VerifyingKey(bytes.fromhex(named.identity))
        address = self.parameters.keys(named.name, identity).address
        remote = SignedRemote(address, named.name, self.origin, self.key, self.clock, self.http)
        return RemoteHelper(named.name, place, identity, remote, self.retries)


def _counted(data: bytes) -> Counts:
    try:
        return Counts.model_validate_json(data)
    except ValidationError:
        raise StrangeAnswer("no numbers of records by model") from None


def _query(opening: bytes) -> Query:
    """Signed with the rest: a request about an aborted dataset is nothing to the next of its name."""
    return {"opening": opening.hex()}


def _path(dataset: str) -> str:
    return f"/v1/datasets/{quote(dataset, safe='')}"
