"""The parties of a simulation, each over a folder of its own: nothing else outlives its end."""

import json
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import httpx
from fastapi import FastAPI

from maskedlark.adserver.app import create_app as adserver_app
from maskedlark.adserver.client import Client
from maskedlark.adserver.config import Limits
from maskedlark.adserver.remote_helper import Connections, Retries
from maskedlark.adserver.report_store import Reports
from maskedlark.clock import FixedClock
from maskedlark.helper.app import create_app as helper_app
from maskedlark.helper.config import Config
from maskedlark.helper.errors import NoReceiptKey
from maskedlark.helper.keyring import Keyring, Span
from maskedlark.helper.service import Service, open_service
from maskedlark.parameter_service.app import create_app as parameter_app
from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.storage.engine import open_database
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.keys import KEYS_TYPE, KeyConfiguration
from maskedlark.wire.signatures import SigningKey
from tests.simulation.copies import Copy
from tests.simulation.faults import Crash, Faults
from tests.simulation.network import Network
from tests.unit.parameters.cases import HELPER_KEYS, SERVICE_KEY, make

NOW = 1_900_000_000
DAY = 86_400
SERVICE = "parameters.test"
ORIGINS = ("ads.example", "other.example")
SPAN = Span(valid_s=5 * DAY, overlap_s=10 * DAY)
MAX_VALUE = 1 << 40
ATTEMPTS = 2
CHECKS = ("bits", "bits", "none")
"""Whether reports are checked: in two worlds of three."""
FRESH_S = (0, 60, 60, 60, 60)
"""How long an ad server trusts what it heard of the parameter service: in one world of five, not at all."""


@cache
def document_key(origin: str) -> SigningKey:
    """The key that an origin signs its documents with."""
    return SigningKey(FixedRandomness(f"{origin} documents".encode()).bytes(32))


@cache
def request_key(origin: str, number: int) -> SigningKey:
    """The keys that an origin signs requests with, one after another."""
    return SigningKey(FixedRandomness(f"{origin} {number}".encode()).bytes(32))


@dataclass
class Skewed:
    """A party's own clock: the simulation's, and how far off it is."""

    base: FixedClock
    offset: int = 0

    def now(self) -> int:
        return self.base.now() + self.offset


class Surroundings(Protocol):
    """What a party needs of its world."""

    seed: int
    faults: Faults
    network: Network
    helpers: list["Helper"]


@dataclass
class Party(ABC):
    """One party: what it keeps is in its folder, and all else goes when it ends."""

    host: str
    folder: Path
    clock: Skewed
    world: "Surroundings"
    server: str | None = None
    """The URL of its database, where that is no file of its folder."""
    app: FastAPI | None = None
    starts: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Begin from what is in the folder. An end on the way leaves what was done so far."""
        self.starts += 1
        try:
            with self.world.faults.running(self.host), ExitStack() as stack:
                self.app = self._open(stack)
                self._stack = stack.pop_all()
        except Crash:
            self.end()
            raise

    def end(self) -> None:
        """Nothing is left but the folder."""
        self.app = None
        self.world.faults.dead.discard(self.host)
        self._stack.close()

    def rng(self) -> Randomness:
        """Other draws every time it starts: what repeats would be mistaken for what was there."""
        return FixedRandomness(f"{self.world.seed} {self.host} {self.starts}".encode())

    def http(self) -> httpx.Client:
        return httpx.Client(transport=self.world.network)

    @abstractmethod
    def _open(self, stack: ExitStack) -> FastAPI:
        """Its app, over what is in the folder; the stack closes it."""

    def _parameters(self, pins: tuple[str, ...]) -> ParameterClient:
        pinned = {name: document_key(name).verifying for name in pins}
        return ParameterClient(
            f"http://{SERVICE}",
            SERVICE_KEY.verifying,
            self.folder / "cache",
            self.clock,
            pinned,
            FRESH_S[self.world.seed % len(FRESH_S)],
            self.http(),
        )


class ParameterService(Party):
    def _open(self, stack: ExitStack) -> FastAPI:
        identities = {each.name: each.identity.verifying for each in self.world.helpers}
        pinned = Pinned({name: document_key(name).verifying for name in ORIGINS}, identities)
        store = Store(self.server or f"sqlite:///{self.folder / 'parameters.sqlite'}")
        stack.callback(store.close)
        return parameter_app(store, SERVICE_KEY, self.clock, pinned)


@dataclass
class Helper(Party):
    place: int = 0
    published: KeyConfiguration | None = None
    """The keys that browsers see."""

    @property
    def name(self) -> str:
        return f"helper-{self.place}"

    @property
    def identity(self) -> SigningKey:
        return HELPER_KEYS[self.place]

    def config(self) -> Config:
        given = {
            "name": self.name,
            "folder": str(self.folder / "state"),
            "address": f"http://{self.host}",
            "parameter_service": f"http://{SERVICE}",
            "service_key": SERVICE_KEY.verifying.public.hex(),
            "origins": {name: document_key(name).verifying.public.hex() for name in ORIGINS},
            "policy": {
                "trusted_helpers": [key.verifying.public.hex() for key in HELPER_KEYS],
                "max_budget": {"epsilon": 100, "delta": 1e-3},
                "max_coalition": {"epsilon": 100, "delta": 1e-3},
                "min_k": 1,
            },
            "compute": {"workers": 1},
            "keep_days": 5,
            "database": self.server,
        }
        return Config.model_validate_json(json.dumps(given))

    def rotate(self) -> None:
        """New keys, made durable and then published."""
        self.starts += 1
        made = Keyring(self.config().keys_folder, self.name, 5 * DAY).rotate(
            self.identity, f"http://{self.host}", self.clock.now(), self.rng(), SPAN
        )
        self.publish(made)

    def publish(self, made: KeyConfiguration) -> None:
        with Remote(f"http://{SERVICE}", self.http()) as remote:
            remote.post("/v2/keys", made.sign(self.identity), KEYS_TYPE, {"helper": self.name})
        self.published = made

    @property
    def copy(self) -> Copy:
        """The old copy of its database that an operator keeps, who may put it back by mistake."""
        return Copy(self.folder / "state" / "database", self.folder / "copy")

    def _open(self, stack: ExitStack) -> FastAPI:
        try:
            return self._serve(stack)
        except NoReceiptKey:
            # What its operator does when the helper says so.
            self.rotate()
            return self._serve(stack)

    def _serve(self, stack: ExitStack) -> FastAPI:
        self.service: Service = stack.enter_context(
            open_service(self.config(), self.clock, self.rng(), self.http())
        )
        # The app's own task would forget by the machine's clock: steps do.
        return helper_app(self.service)


@dataclass
class AdServer(Party):
    """Both processes of an origin: the one that takes uploads, and the one that measures."""

    documents: list[Document] = field(default_factory=list)
    """All that were published, as its owner knows them."""
    signing: SigningKey | None = None
    """The key that it was started with."""
    _drafted: Document | None = None

    @property
    def origin(self) -> str:
        return self.host

    @property
    def keys(self) -> list[SigningKey]:
        """All that it has signed requests with, the newest last: each was declared by a document."""
        declared = dict.fromkeys(each.request_key for each in self.documents)
        return [request_key(self.origin, number) for number in range(max(1, len(declared)))]

    @property
    def known_keys(self) -> list[SigningKey]:
        """Those, and the next one: who published a document has not always heard that it did."""
        return [*self.keys, request_key(self.origin, len(self.keys))]

    def publish(self, new_key: bool = False, **changes: Any) -> None:
        """The next version, or the one before if nobody heard whether it was published."""
        keys = self.keys
        declared = request_key(self.origin, len(keys)) if new_key else keys[-1]
        signs = document_key(self.origin)
        changes |= {"document_key": signs.verifying.public.hex()}
        changes |= {"request_key": declared.verifying.public.hex()}
        if self.documents:
            before = self.documents[-1]
            changes |= {"version": before.version + 1, "previous": before.digest.hex()}
        given = settings(self.origin, len(self.world.helpers)) | {"checks": CHECKS[self.world.seed % 3]}
        self._drafted = self._drafted or make(**(given | changes))
        signed = chain.sign(self._drafted, signs)
        with Remote(f"http://{SERVICE}", self.http()) as remote:
            remote.post("/v2/documents", signed.encode(), "application/json")
        self.documents.append(self._drafted)
        self._drafted = None

    def finish(self) -> None:
        """What its operator does: a document that was begun is published, and its key is the one in use."""
        if self._drafted is not None:
            self.publish()
        if self.app is not None and self.signing is not self.keys[-1]:
            self.end()

    def _open(self, stack: ExitStack) -> FastAPI:
        url = self.server or f"sqlite:///{self.folder / 'ads.sqlite'}"
        taking = open_database(url)
        stack.callback(taking.close)
        self.reports = Reports(taking, self.clock)
        self.signing = self.keys[-1]
        parameters, retries = self._parameters((self.origin,)), Retries(ATTEMPTS, sleep=lambda _: None)
        connections = Connections(self.origin, self.signing, parameters, self.clock, self.http(), retries)
        self.client = stack.enter_context(
            Client(self.origin, open_database(url), parameters, connections, self.clock, self.rng())
        )
        documents = partial(parameters.chain_now, self.origin)
        # All reports come from one address, faster than from an office.
        return adserver_app(self.origin, self.reports, self.clock, documents, Limits(burst_s=1e9))


def settings(origin: str, helpers: int) -> dict[str, Any]:
    """A document with little in it: small k, a small budget, short lives."""
    return {
        "origin": origin,
        "not_after": NOW + 1000 * DAY,
        "helpers": [
            {"name": f"helper-{i}", "identity": HELPER_KEYS[i].verifying.public.hex()} for i in range(helpers)
        ],
        "k": 2,
        "budget": {"epsilon": 2.0, "delta": 1e-6},
        "training": None,
        "mechanisms": {"sums": {"kind": "laplace", "noise_floor": 1.0}},
        "max_records": 1 << 10,
        "keys": ["campaign"],
        "values": [{"name": "purchase", "low": 0, "high": MAX_VALUE}],
        "models": [],
        "decoys": [],
        "fake_rate": 0.0,
        "report_lifetime_s": DAY,
    }
