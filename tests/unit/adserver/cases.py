"""An ad server without a socket: its app behind a plain httpx client."""

import asyncio
from collections.abc import Sequence

import httpx
from fastapi import FastAPI

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
