"""A small service under `serve`, as a process of its own: `python served.py SETTINGS`, in JSON."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter

from maskedlark.cli import signals
from maskedlark.web import body, error_responses, health
from maskedlark.web.errors import CannotServe
from maskedlark.web.processes import supervise
from maskedlark.web.serving import Inherited, Serving, serve

HOST = "127.0.0.1"


def app() -> FastAPI:
    """Answers at once, with much, with what it was sent, or when it is let go."""
    made, leave = FastAPI(), threading.Event()
    begun: list[bool] = []
    made.state.reloads = 0
    error_responses.install(made)
    made.state.metrics = CollectorRegistry()
    health.install(made, lambda: None)
    Counter("served", "For the test to find.", registry=made.state.metrics)

    @made.get("/pid")
    async def pid() -> Response:
        return Response(str(os.getpid()))

    @made.get("/reloads")
    async def reloads() -> Response:
        return Response(str(made.state.reloads))

    @made.get("/client")
    async def client(request: Request) -> Response:
        return Response(request.client.host if request.client else "")

    @made.get("/big/{size}")
    async def big(size: int) -> Response:
        return Response(bytes(size))

    @made.get("/held")
    def held() -> Response:
        # In a thread that cannot be stopped, as computing is.
        begun.append(True)
        assert leave.wait(60)
        return Response(b"answered")

    @made.get("/begun")
    async def count() -> Response:
        return Response(str(len(begun)))

    @made.get("/leave")
    async def go() -> Response:
        leave.set()
        return Response()

    @made.post("/length")
    async def length(request: Request) -> Response:
        with made.state.body_memory.reserve() as reservation:
            return Response(str(len(await body.read(request, 1 << 20, 60.0, reservation))))

    return made


class Served:
    """The running service."""

    def __init__(self, settings: dict[str, Any], **options: Any) -> None:
        command = [sys.executable, __file__, json.dumps(settings)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )
        assert self.process.stdout is not None
        self.lines = partial(self.process.stdout.readline)
        self.announced = self.lines()
        self.address = self.announced.removeprefix("listening on ").strip()
        self.port = int(self.address.rpartition(":")[2] or 0)

    def connect(self, secured: ssl.SSLContext | None = None) -> socket.socket:
        """A connection, on which nothing was said."""
        made = socket.create_connection((HOST, self.port), timeout=30)
        return secured.wrap_socket(made, server_hostname="localhost") if secured else made

    def ask(self, path: str, secured: ssl.SSLContext | None = None) -> bytes:
        """All that is answered on a new connection."""
        with self.connect(secured) as connection:
            connection.sendall(request(path))
            return whole(connection)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tell it to stop."""
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said on standard error."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def served(settings: dict[str, Any], **options: Any) -> Iterator[Served]:
    """Runs for as long as the block does."""
    made = Served(settings, **options)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def request(path: str, headers: str = "connection: close\r\n", method: str = "GET") -> bytes:
    """As it is sent."""
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode()


def whole(connection: socket.socket) -> bytes:
    """What comes until the connection is closed in peace."""
    found = b""
    while part := connection.recv(1 << 16):
        found += part
    return found


def rest(connection: socket.socket) -> bytes:
    """The same, or nothing if it ends otherwise."""
    try:
        return whole(connection)
    except ConnectionError:
        return b""


def _reloaded(made: FastAPI) -> None:
    made.state.reloads += 1


def child(settings: Serving, inherited: Inherited) -> None:
    """One of several processes."""
    signals.before_serving()
    try:
        serve(app(), settings, inherited, _reloaded)
    except CannotServe as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    signals.before_serving()
    try:
        wanted = Serving.model_validate_json(sys.argv[1])
        if wanted.processes > 1:
            sys.exit(supervise(wanted, partial(child, wanted)))
        serve(app(), wanted)
    except CannotServe as error:
        sys.exit(f"{type(error).__name__}: {error}")
