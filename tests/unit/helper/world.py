"""A helper with all its parts, a parameter service and an ad server's requests, without a socket."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.helper.app import create_app
from maskedlark.helper.config import Config
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.service import Service, open_service
from maskedlark.parameter_service.app import create_app as parameter_app
from maskedlark.parameter_service.publisher import Pinned, Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release.messages import Request
from maskedlark.simulate import Population
from maskedlark.web.remote import SignedRemote
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import datasets
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    State,
)
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY, make
from tests.unit.web.service import AppTransport

NOW = 1_900_000_000
DAY_S = 86_400
NAME, ORIGIN, OTHER = "helper-0", "ads.example", "other.example"
OTHER_KEY = SigningKey(FixedRandomness(b"another origin").bytes(32))
OTHER_DOCUMENT_KEY = SigningKey(FixedRandomness(b"another origin, documents").bytes(32))
ELSEWHERE = OpeningKey.generate(FixedRandomness(b"helper-1"))
PINNED = Pinned(
    {ORIGIN: DOCUMENT_KEY.verifying, OTHER: OTHER_DOCUMENT_KEY.verifying},
    {f"helper-{i}": key.verifying for i, key in enumerate(HELPER_KEYS)},
)


def settings(folder: Path, **changes: Any) -> Config:
    given = {
        "name": NAME,
        "folder": str(folder / "state"),
        "address": "https://helper-0.example",
        "parameter_service": "http://parameters.test",
        "service_key": SERVICE_KEY.verifying.public.hex(),
        "origins": {name: key.public.hex() for name, key in PINNED.origins.items()},
        "policy": {
            "trusted_helpers": [key.verifying.public.hex() for key in HELPER_KEYS],
            "max_budget": {"epsilon": 8, "delta": 1e-6},
            "max_coalition": {"epsilon": 40, "delta": 1e-6},
        },
        "compute": {"workers": 1},
        "fresh_s": 60,
    }
    return Config.model_validate_json(json.dumps(given | changes))


class World:
    """One helper that runs, and what its ad servers do."""

    def __init__(self, folder: Path, service: Service, clock: FixedClock, publisher: Publisher) -> None:
        self.folder, self.service, self.clock, self.publisher = folder, service, clock, publisher
        self.app: FastAPI = create_app(service)
        self.document: Document

    @property
    def keyring(self) -> Keyring:
        return self.service.keyring

    def publish(self, key: SigningKey = DOCUMENT_KEY, **changes: Any) -> Document:
        """The next document, and the other helper's keys."""
        address = "https://helper-1.example"
        span = PublishedKey(ELSEWHERE.sealing, NOW - 1000, NOW + 3000 * DAY_S)
        made = KeyConfiguration("helper-1", HELPER_KEYS[1].verifying, address, 1, (span,))
        self.publisher.publish_keys("helper-1", made.sign(HELPER_KEYS[1]))
        self.document = make(**changes)
        self.publisher.publish(chain.sign(self.document, key))
        return self.document

    def http(self) -> httpx.Client:
        return httpx.Client(transport=AppTransport(self.app), base_url="http://helper.test", timeout=None)

    def remote(self, key: SigningKey = REQUEST_KEY, origin: str = ORIGIN, helper: str = NAME) -> SignedRemote:
        return SignedRemote("http://helper.test", helper, origin, key, self.clock, self.http())

    def reports(self, document: Document, count: int = 60) -> ByteRows:
        """A helper's parts of reports to aggregate: half bought, all for one campaign."""
        key = self.keyring.opening_keys(self.clock.now()).values()
        keys = list(key)[-1].sealing, ELSEWHERE.sealing
        population = Population(document, keys, self.clock.now() - 9 * DAY_S, SystemRandomness())
        values = np.arange(count) % 2
        made = population.measure([["spring"] * count, [7] * count], [values * 100, values])
        return document.layout(Purpose.AGGREGATE).parts([data for chunk in made for data in chunk], 0)

    def frozen(self, document: Document, name: str = "monday", count: int = 60) -> Frozen:
        """A dataset on its whole way."""
        remote = self.remote()
        begin(remote, document, name)
        body = datasets.encode_chunk(self.reports(document, count))
        answer = ChunkAnswer.decode(
            remote.post(f"/v2/datasets/{name}/chunks/0", body, CHUNK_TYPE, opened(name))
        )
        freezing = FreezeRequest(accepted=(answer.accepted,)).encode()
        found = Frozen.decode(remote.post(f"/v2/datasets/{name}/freeze", freezing, FREEZE_TYPE, opened(name)))
        remote.post(f"/v2/seeds/{found.digest}", b"", NO_BODY_TYPE)
        return found


@contextmanager
def world(folder: Path, **changes: Any) -> Iterator[World]:
    """A helper with keys, a parameter service with nothing published."""
    clock, config = FixedClock(NOW), settings(folder, **changes)
    keyring = Keyring(config.keys_folder, NAME)
    keyring.rotate(HELPER_KEYS[0], config.address, NOW, SystemRandomness())
    with running(folder, config, clock) as made:
        yield made


@contextmanager
def running(
    folder: Path, config: Config, clock: FixedClock, theirs: FixedClock | None = None
) -> Iterator[World]:
    """A helper on what it left on the disk; `theirs` is the parameter service's clock, if it is another."""
    store = Store(folder / "parameters.db")
    publisher = Publisher(store, SERVICE_KEY, clock, PINNED)
    transport = AppTransport(parameter_app(store, SERVICE_KEY, theirs or clock, PINNED))
    try:
        with open_service(config, clock, SystemRandomness(), httpx.Client(transport=transport)) as service:
            yield World(folder, service, clock, publisher)
    finally:
        store.close()


def opened(name: str = "monday", again: int = 0) -> dict[str, str | int]:
    """The query of what is about a dataset's attempt."""
    return {"attempt": hashlib.sha256(f"{name} {again}".encode()).hexdigest()[:32]}


def new_dataset(document: Document, name: str = "monday", again: int = 0) -> bytes:
    given = {"parameters": document.digest.hex(), "purpose": "aggregate"}
    return json.dumps(given | opened(name, again)).encode()


def begin(remote: SignedRemote, document: Document, name: str = "monday", again: int = 0) -> State:
    body = new_dataset(document, name, again)
    return State.decode(remote.post(f"/v2/datasets/{name}", body, JSON_TYPE))


def question(*digests: str, number: int = 1, noise: float = 20.0, **arguments: Any) -> bytes:
    return Request(
        id=f"{number:032x}",
        datasets=digests,
        function="sums",
        arguments={"values": ["purchase", "count"], "by": [["campaign"]]} | arguments,
        noise=noise,
    ).encode()
