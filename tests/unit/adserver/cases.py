"""An ad server without a socket: its app behind a plain httpx client."""

import asyncio
import threading
from collections.abc import Sequence

import httpx
from fastapi import FastAPI

from maskedlark.parameters.document import Document
from maskedlark.wire.uploads import CONTENT_TYPE, Answer, decode_answers, encode_batch

URL = "http://ads.example"


class AppTransport(httpx.BaseTransport):
    """Runs each request through the app, in an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._handle(request.method, request.url, request.headers, request.read()))

    async def _handle(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app)) as client:
            found = await client.request(method, url, headers=headers, content=content)
        return httpx.Response(
            found.status_code, headers=found.headers, stream=httpx.ByteStream(found.content)
        )


def client_of(app: FastAPI) -> httpx.Client:
    return httpx.Client(transport=AppTransport(app), base_url=URL)


def post(client: httpx.Client, body: bytes, content_type: str = CONTENT_TYPE) -> httpx.Response:
    return client.post("/v2/reports", content=body, headers={"content-type": content_type})


def upload(client: httpx.Client, reports: Sequence[bytes]) -> tuple[Answer, ...]:
    response = post(client, encode_batch(reports))
    assert response.status_code == 200, response.text
    return decode_answers(response.content, len(reports))


class Asked:
    """The parameter service as an ad server asks it; it can be away, or answer only when it is let."""

    def __init__(self, *documents: Document) -> None:
        self.documents, self.times = [*documents], 0
        self.error: Exception | None = None
        self.now = self.most = 0
        """How many ask at the same time, and how many ever did."""
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self) -> list[Document]:
        self.times += 1
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.set()
        assert self.free.wait(60)
        self.now -= 1
        if self.error is not None:
            raise self.error
        return self.documents
