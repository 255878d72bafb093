"""The network of a simulation: every party behind its host; requests get lost, late or twice."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import httpx
from fastapi import FastAPI

from maskedlark.release import messages
from maskedlark.wire.checks import Checks, SignedChecks
from tests.simulation.faults import Crash, Faults, Kind

UNEXPECTED = 500
RELEASES = b"/v2/releases"
_KEY = re.compile(rb'keyid="([0-9a-f]{64})"')
T = TypeVar("T")


class Message(NamedTuple):
    """A request on its way, as the bytes that were signed."""

    host: str
    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Heard(NamedTuple):
    """What a party answered to a message."""

    message: Message
    status: int
    body: bytes


@dataclass
class Network(httpx.BaseTransport):
    """Hands every request to the app of its host, unless the step's fault is in it."""

    faults: Faults
    app_of: Callable[[str], FastAPI | None]
    """The app of a running party; none while it is down."""
    late: list[Message] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    """All answers of a step, also those that nobody waits for."""
    delivered: list[Message] = field(default_factory=list)
    """All messages of a step that reached somebody."""
    crashed: Callable[[str], None] = lambda _: None
    loops: dict[str, "Loop"] = field(default_factory=dict)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        message = Message(
            request.url.host, request.method, request.url.raw_path, request.headers.raw, request.read()
        )
        self.faults.point()
        if self.faults.is_due(Kind.LOST_REQUEST):
            raise httpx.ConnectError("the request was lost", request=request)
        if self.faults.is_due(Kind.DELAYED):
            self.late.append(message)
            raise httpx.ReadTimeout("no answer came", request=request)
        if self.faults.is_due(Kind.COPIED):
            self.late.append(message)
        if self.faults.is_due(Kind.TWICE):
            self.deliver(message)
        found = self.deliver(message)
        if found is None or self.faults.is_due(Kind.LOST_ANSWER):
            raise httpx.ReadError("the answer was lost", request=request)
        self.faults.point()
        return httpx.Response(found.status, content=found.body)

    def deliver(self, message: Message) -> Heard | None:
        """What the party answers; nothing if it is down, or ends before it has answered."""
        app = self.app_of(message.host)
        if app is None:
            return None
        self.delivered.append(message)
        try:
            with self.faults.running(message.host):
                status, body = self._loop(message.host).answer(_call(app, message))
                self.faults.point()
        except Crash:
            self.crashed(message.host)
            return None
        heard = Heard(message, status, body)
        self.heard.append(heard)
        return heard

    def end(self) -> None:
        """Not `close`: clients of httpx call that, each when it is done."""
        for loop in self.loops.values():
            loop.close()

    def _loop(self, host: str) -> "Loop":
        if host not in self.loops:
            self.loops[host] = Loop()
        return self.loops[host]


class Loop(asyncio.SelectorEventLoop):
    """A party's loop, without threads: what would run in one runs at once, so runs are alike and quick."""

    def answer(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it, also while another party's loop waits for this very answer."""
        waiting = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self.run_until_complete(coroutine)
        finally:
            asyncio._set_running_loop(waiting)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


async def at_once(call: Callable[..., T], *arguments: Any, **_: Any) -> T:
    """In place of `anyio.to_thread.run_sync`."""
    return call(*arguments)


async def _call(app: FastAPI, message: Message) -> tuple[int, bytes]:
    """One request through an app."""
    path, _, query = message.target.partition(b"?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": message.method,
        "scheme": "http",
        "path": httpx.URL(f"http://{message.host}{path.decode()}").path,
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in message.headers],
        "client": ("simulation", 1),
        "server": (message.host, 80),
        "state": {},
    }
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": message.body, "more_body": False}

    async def send(part: Any) -> None:
        said.append(part)

    await app(scope, receive, send)
    status = next(part["status"] for part in said if part["type"] == "http.response.start")
    return status, b"".join(part.get("body", b"") for part in said if part["type"] == "http.response.body")


def is_to_be_signed(message: Message) -> bool:
    """Whether it asks for something that a helper writes a receipt of: a release, or a freeze."""
    path = message.target.partition(b"?")[0]
    return message.method == "POST" and (path == RELEASES or path.endswith(b"/freeze"))


def request_of(heard: Heard) -> str | None:
    """The id of the question that was answered; none for anything else, and for refusals."""
    if heard.status != httpx.codes.OK or heard.message.target != RELEASES:
        return None
    return messages.Request.decode(heard.message.body).id


def receipt_of(heard: Heard) -> bytes | None:
    """The receipt that left with an answer."""
    if heard.status != httpx.codes.OK or not is_to_be_signed(heard.message):
        return None
    if heard.message.target == RELEASES:
        return messages.decode_answer(heard.body).receipt.encode()
    return str(json.loads(heard.body)["receipt"]).encode()


def checks_of(heard: Heard) -> Checks | None:
    """The numbers that left for the check of a chunk."""
    path = heard.message.target.partition(b"?")[0]
    if heard.status != httpx.codes.OK or heard.message.method != "GET" or not path.endswith(b"/checks"):
        return None
    return Checks.decode(SignedChecks.decode(heard.body).body)


def signer_of(heard: Heard) -> tuple[str, str] | None:
    """Whose request it was that was taken, and signed with which key; none if it was refused, or unsigned."""
    headers = dict(heard.message.headers)
    found = _KEY.search(headers.get(b"signature-input", b""))
    if found is None or not httpx.codes.is_success(heard.status):
        return None
    return headers[b"maskedlark-origin"].decode(), found[1].decode()
