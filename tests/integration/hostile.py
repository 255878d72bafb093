"""Tools of an attacker, and a server that does nothing against one."""

import contextlib
import json
import selectors
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request, Response

MIB = 1 << 20
GIB = 1 << 30


class Target(NamedTuple):
    """An endpoint that takes a body, and the headers that get a request there."""

    address: str
    path: str
    headers: dict[str, str]
    max_bytes: int


def connect(address: str) -> socket.socket:
    """A connection on which nothing was said."""
    url = urlsplit(address)
    return socket.create_connection((url.hostname, url.port), timeout=60)


def head(target: Target, length: str) -> bytes:
    """The beginning of a request, `length` being the header that says how long its body is."""
    lines = [f"POST {target.path} HTTP/1.1", "host: x", *(f"{k}: {v}" for k, v in target.headers.items())]
    return "\r\n".join([*lines, length, "", ""]).encode()


def status(connection: socket.socket) -> int | None:
    """Of the answer, if there is one."""
    with contextlib.suppress(ConnectionError):
        if line := connection.recv(1 << 16):
            return int(line.split()[1])
    return None


def send_without_end(target: Target, chunked: bool) -> int:
    """Send a gigabyte, whatever is answered. Returns how much of it went away before the end."""
    part, sent = bytes(MIB), 0
    framed = b"%x\r\n%s\r\n" % (len(part), part) if chunked else part
    length = "transfer-encoding: chunked" if chunked else f"content-length: {GIB}"
    with connect(target.address) as connection:
        connection.sendall(head(target, length))
        with contextlib.suppress(ConnectionError):
            while sent < GIB:
                connection.sendall(framed)
                sent += len(part)
    return sent


@contextlib.contextmanager
def dripping(address: str, beginnings: Sequence[bytes], byte: bytes = b"x") -> Iterator[list[bool]]:
    """Connections that begin so, and send a byte a second while the block runs. Which of them were cut."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(connect(address)) for _ in beginnings]
        cut, stop = [False] * len(links), threading.Event()
        for link, said in zip(links, beginnings, strict=True):
            with contextlib.suppress(ConnectionError):
                link.sendall(said)
            link.setblocking(False)

        def drip() -> None:
            while not stop.wait(1.0):
                for place, link in enumerate(links):
                    with contextlib.suppress(BlockingIOError):
                        try:
                            link.send(byte)
                            cut[place] |= link.recv(1 << 16) == b""
                        except ConnectionError:
                            cut[place] = True

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield cut
        finally:
            stop.set()
            thread.join()


def are_closed(links: Sequence[socket.socket], within_s: float) -> int:
    """How many of these connections are closed by the other side before the time is over."""
    waiting, closed, end = selectors.DefaultSelector(), 0, time.monotonic() + within_s
    for each in links:
        waiting.register(each, selectors.EVENT_READ)
    while closed < len(links) and (left := end - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            waiting.unregister(key.fileobj)
            closed += 1
    waiting.close()
    return closed


class Memory:
    """The most memory that a process had, since this was made: beyond what it had then."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # The highest mark begins anew.
        self._before = self._read("VmRSS")

    def grown(self) -> int:
        """In bytes."""
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def bomb(size: int) -> bytes:
    """A gzip of so many zeros: a thousandth of them."""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packing.compress(bytes(MIB)) for _ in range(size // MIB)) + packing.flush()


def naive_app() -> FastAPI:
    """What one writes first."""
    app = FastAPI()

    @app.post("/")
    async def take(request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = zlib.decompress(body, 31)
        return Response(str(len(body)) if body[:1] != b"[" else str(json.loads(body)))

    return app


class Naive:
    """That server, as a process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.target = Target(self.process.stdout.readline().strip(), "/", {}, 0)

    def __enter__(self) -> "Naive":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        # As many connections as it takes, and no limit but that: they are all it may have.
        config = uvicorn.Config(naive_app(), log_level="critical", limit_concurrency=50)
        uvicorn.Server(config).run(sockets=[listening])
