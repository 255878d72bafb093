"""A stranger who connects as fast as told, and says nothing: `python flooding.py HOST PORT RATE SECONDS`."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from urllib.parse import urlsplit

HELD = 4096
"""Connections kept open: more than a service has places. Those before were cut."""
SOURCES = [f"127.0.0.{place}" for place in range(2, 10)]
"""Each has ports of its own."""


def flood(host: str, port: int, rate: float, for_s: float) -> int:
    """How many connections were made."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (HELD + 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    held, made, begun = deque[socket.socket](), 0, time.monotonic()
    while (passed := time.monotonic() - begun) < for_s:
        if made >= rate * passed:
            time.sleep(0.001)
            continue
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            link.bind((SOURCES[made % len(SOURCES)], 0))
            link.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                link.connect((host, port))
            made += 1
        held.append(link)
        if len(held) > HELD:
            held.popleft().close()
    return made


@contextlib.contextmanager
def flooded(address: str, rate: float, for_s: float) -> Iterator[subprocess.Popen[str]]:
    """A process that does so. Its output is how many connections it made."""
    url = urlsplit(address)
    command = [sys.executable, __file__, str(url.hostname), str(url.port), str(rate), str(for_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
