"""A parameter service in memory of its own, and clients that reach it without a socket."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from maskedlark.clock import FixedClock
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.publisher import Pinned, Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY, make

NOW = 1_900_000_000
ORIGIN = "ads.example"
URL = "http://parameters.test"
PINNED = Pinned(
    {ORIGIN: DOCUMENT_KEY.verifying}, {f"helper-{i}": key.verifying for i, key in enumerate(HELPER_KEYS[:2])}
)


class AppTransport(httpx.BaseTransport):
    """Hands a client's requests to an app, or to whatever a test has put in its place."""

    def __init__(self, app: FastAPI) -> None:
        self.app: FastAPI | Callable[[httpx.Request], httpx.Response] = app
        self.asked = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if not isinstance(self.app, FastAPI):
            return self.app(request)
        return asyncio.run(self._answer(self.app, request))

    async def _answer(self, app: FastAPI, request: httpx.Request) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            answer = await client.request(
                request.method, request.url, content=request.read(), headers=request.headers
            )
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def dripping(_: httpx.Request) -> httpx.Response:
    """Headers at once, and then nothing that ends: a service that hangs."""
    began = time.monotonic()

    class Stream(httpx.SyncByteStream):
        def __iter__(self):
            while True:
                time.sleep(0.2)
                assert time.monotonic() - began < 60, "it is waited for"
                yield b" "

    return httpx.Response(200, stream=Stream())


def away(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens", request=request)


@dataclass
class Service:
    """One parameter service with a store of its own. Two with the same key are one that shows two faces."""

    path: Path
    clock: FixedClock

    def __post_init__(self) -> None:
        self.store = Store(self.path)
        self.publisher = Publisher(self.store, SERVICE_KEY, self.clock, PINNED)
        self.app = create_app(self.store, SERVICE_KEY, self.clock, PINNED)

    def publish(self, drafted: Document, key: SigningKey = DOCUMENT_KEY) -> Signed:
        return self.publisher.publish(chain.sign(drafted, key))[0]

    def publish_chain(self, length: int, **changes: Any) -> list[Document]:
        documents = chained(length, **changes)
        for each in documents:
            self.publish(each)
        return documents

    def http(self) -> httpx.Client:
        return httpx.Client(transport=AppTransport(self.app), base_url=URL)


def chained(length: int, before: Document | None = None, **changes: Any) -> list[Document]:
    documents: list[Document] = []
    for _ in range(length):
        if before is not None:
            changes |= {"version": before.version + 1, "previous": before.digest.hex()}
        before = make(**changes)
        documents.append(before)
    return documents


def client(transport: AppTransport, folder: Path, clock: FixedClock, **changes: Any) -> ParameterClient:
    http = httpx.Client(transport=transport)
    pins = {ORIGIN: DOCUMENT_KEY.verifying}
    return ParameterClient(URL, SERVICE_KEY.verifying, folder, clock, pins, http=http, **changes)


def configuration(
    helper: int,
    sequence: int,
    seed: bytes = b"keys",
    end: int = NOW + 1000,
    address: str = "https://helper.example",
) -> bytes:
    identity = HELPER_KEYS[helper]
    key = OpeningKey.generate(FixedRandomness(seed)).sealing
    published = (PublishedKey(key, NOW - 1000, end),)
    made = KeyConfiguration(f"helper-{helper}", identity.verifying, address, sequence, published)
    return made.sign(identity)
