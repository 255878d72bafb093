"""Asking a service in this process, without a client that tidies what is sent; and what it may answer."""

import asyncio
import json
import signal
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from fastapi import FastAPI

from maskedlark.web import problem
from tests.fuzz.mutations import TEXTS, TOKENS, mutate

WATCHDOG_S = 20.0
"""No request may take this long. Far above what any takes: it finds hangs, and measures nothing."""
METHODS = ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "X" * 300, "CONNECT"]
ODD_HEADERS = [
    (b"content-length", b"-1"),
    (b"content-length", b"99999999999999999999999"),
    (b"content-length", b"0"),
    (b"content-length", "٣".encode()),
    (b"content-encoding", b"gzip"),
    (b"content-type", b"\xff\xfe"),
    (b"content-type", b"application/json; charset=\xff"),
    (b"transfer-encoding", b"chunked"),
    (b"expect", b"100-continue"),
    (b"range", b"bytes=0-"),
    (b"host", b""),
    (b"cookie", b"a" * 9000),
    (b"accept", b"\x00"),
    (b"x-forwarded-for", b"::1"),
    (b"connection", b"upgrade"),
    (b"upgrade", b"websocket"),
]


@dataclass(frozen=True)
class Sent:
    """A request as bytes."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @classmethod
    def to(cls, method: str, target: str, media_type: str = "", body: bytes = b"") -> Self:
        """A plain request."""
        path, _, query = target.encode().partition(b"?")
        headers = ((b"content-type", media_type.encode()),) if media_type else ()
        return cls(method, path, query, headers, body)

    @property
    def target(self) -> str:
        """Path and query, as they are signed."""
        return (self.path + (b"?" + self.query if self.query else b"")).decode("latin-1")

    def __str__(self) -> str:
        return f"{self.method} {self.path!r} {self.query!r} {self.headers!r}\n{self.body.hex()}"


@dataclass(frozen=True)
class Got:
    """An answer as bytes."""

    status: int
    media_type: str
    body: bytes


class Asking:
    """One app and the loop that it runs in."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def ask(self, sent: Sent) -> Got:
        """What the app answers. Run under `running.watched`, where it may hang."""
        signal.setitimer(signal.ITIMER_REAL, WATCHDOG_S)
        try:
            return self._loop.run_until_complete(self._ask(sent))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    async def _ask(self, sent: Sent) -> Got:
        half = len(sent.body) // 2
        coming = [(sent.body[:half], True), (sent.body[half:], False)]
        told: list[Any] = []

        async def receive() -> dict[str, object]:
            if not coming:
                return {"type": "http.disconnect"}
            body, more = coming.pop(0)
            return {"type": "http.request", "body": body, "more_body": more}

        async def send(message: Any) -> None:
            told.append(message)

        await self._app(_scope(sent), receive, send)
        body = b"".join(each.get("body", b"") for each in told[1:])
        headers = dict(told[0]["headers"])
        return Got(told[0]["status"], headers.get(b"content-type", b"").decode(), body)


def _scope(sent: Sent) -> dict[str, object]:
    """As a server makes it: the path decoded, and as it came."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": unquote(sent.path.decode("latin-1")),
        "raw_path": sent.path,
        "query_string": sent.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in sent.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


def check(sent: Sent, got: Got) -> None:
    """A service may refuse anything, and say so in one form; it may not break."""
    assert got.status < 500 or got.status == 503, f"{got.status} for {sent}"
    if got.status < 400 or sent.method == "HEAD":
        return
    assert got.media_type == problem.MEDIA_TYPE, f"{got.media_type} for {sent}"
    found = json.loads(got.body)
    assert found["status"] == got.status, str(sent)
    assert found["title"], str(sent)
    slug = found["type"].removeprefix("/problems/")
    assert found["type"] == "about:blank" or slug in problem._classes(), f"{found['type']} for {sent}"
    assert found["type"] == "about:blank" or found["detail"], f"no detail for {sent}"


def changed(sent: Sent, others: list[Sent], rng: Random) -> Sent:
    """A request with one or two of its parts changed: mostly the body, which is read by the most code."""
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.random()
        if kind < 0.65 and sent.body:
            sent = replace(sent, body=mutate(sent.body, [each.body for each in others], rng))
        elif kind < 0.73:
            sent = replace(sent, path=_path(sent.path, rng))
        elif kind < 0.8:
            sent = replace(sent, query=mutate(sent.query or b"after=0", [b"after=1", b"helper=a"], rng))
        elif kind < 0.85:
            sent = replace(sent, method=rng.choice(METHODS))
        elif kind < 0.9:
            sent = replace(sent, body=rng.choice(others).body)
        else:
            sent = replace(sent, headers=_headers(sent.headers, rng))
    return sent


def _path(path: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return b"/" + mutate(path[1:], [path], rng).replace(b"?", b"").replace(b"\n", b"")[:4000]
    parts = path.split(b"/")
    odd = [
        rng.choice(TEXTS).encode(),
        rng.choice(TOKENS)[:2000],
        b"%2e%2e",
        b"%",
        b"%zz",
        b"",
        b"0" * 30,
        b"-1",
    ]
    at = rng.randrange(len(parts)) if rng.random() < 0.2 else -1 - rng.randrange(min(2, len(parts)))
    parts[at] = rng.choice([*odd, b"1e5", b"latest", "é".encode(), b"%ff%fe", b"%00"])
    return b"/" + b"/".join(parts).lstrip(b"/").replace(b"?", b"")


def _headers(headers: tuple[tuple[bytes, bytes], ...], rng: Random) -> tuple[tuple[bytes, bytes], ...]:
    """One left out, said twice, changed, or an odd one added."""
    kind, at = rng.randrange(4), rng.randrange(len(headers) + 1)
    if kind == 0 or at == len(headers):
        return (*headers, rng.choice(ODD_HEADERS))
    name, value = headers[at]
    if kind == 1:
        return headers[:at] + headers[at + 1 :]
    if kind == 2:
        return (*headers, (name, value))
    return (*headers[:at], (name, mutate(value, [value], rng)[:9000]), *headers[at + 1 :])


def chosen(requests: list[Sent], rng: Random) -> Sent:
    """Any of them, those with a body more often."""
    full = [each for each in requests if each.body]
    return rng.choice(full if rng.random() < 0.7 else requests)
