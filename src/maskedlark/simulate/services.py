"""A service as its own process, which can be started, stopped, killed and restarted."""

import errno
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.forked import ForkedService, ForkServer
from maskedlark.web.errors import ServiceAway

STOPS_WITHIN_S = 30
PORTS = range(15_000, 30_000)
"""None of those that systems give to outgoing connections: one could have it before the service listens."""
_GIVEN = deque[int]()
_REMEMBERED = 64
_TRIES = 16
"""Per port: one that is free is missed once in ten million times, if no other is."""


class Process:
    """One service. It keeps its port when it is restarted. With a fork server it starts at once."""

    def __init__(
        self, arguments: Sequence[object], port: int | None = None, server: ForkServer | None = None
    ) -> None:
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._arguments = [*map(str, arguments), "--port", str(self.port)]
        self._server = server
        self._running: subprocess.Popen[str] | ForkedService | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._started().pid

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self._running is not None and self._running.poll() is not None

    def launch(self, **environment: str) -> Self:
        """Start it without waiting: several services start faster at the same time."""
        assert self._running is None, "it runs already"
        # What the environment says is read by an interpreter as it starts.
        if self._server is not None and not environment:
            self._running = self._server.fork(self._arguments)
            return self
        self._running = subprocess.Popen(  # noqa: S603
            [sys.executable, *self._arguments],
            stdin=subprocess.PIPE,  # It ends when we end, however that is: `--stop-with-input`.
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            process_group=0,  # Ctrl-C goes only to the parent, which stops it in order.
        )
        return self

    def start(self, **environment: str) -> Self:
        """Start it, and return when it answers. Its errors go to standard error."""
        return self.launch(**environment).wait()

    def wait(self) -> Self:
        """Return when it answers."""
        output = self._started().stdout
        assert output is not None
        if not output.readline().startswith("listening on "):
            code = self._end()
            raise ServiceAway(f"{' '.join(self._arguments[:4])} ended with {code}; what it said is above")
        return self

    def stop(self) -> int:
        """Stop it gracefully, as an operator would. Returns its exit code."""
        self._started().terminate()
        return self._end()

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self._started().kill()
        self._end()

    def _started(self) -> subprocess.Popen[str] | ForkedService:
        assert self._running is not None, "it was not started"
        return self._running

    def _end(self) -> int:
        running, self._running = self._started(), None
        with running:  # Closes its pipe.
            try:
                return running.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                running.kill()
                return running.wait()

    def __enter__(self) -> Self:
        return self.wait() if self._running else self.start()

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self.stop()


def free_port() -> int:
    """A port that nobody listens on, and that nobody else gets from here before a service does."""
    for _ in range(_TRIES * len(PORTS)):
        port = PORTS[int(SystemRandomness().below(len(PORTS), 1)[0])]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
            # Nothing of ours uses UDP: its port of the same number says that this one was given away.
            if _is_done(partial(given.bind, ("127.0.0.1", port))) and is_free(port):
                _GIVEN.append(given.detach())
                if len(_GIVEN) > _REMEMBERED:
                    os.close(_GIVEN.popleft())
                return port
    raise ServiceAway(f"every port from {PORTS[0]} to {PORTS[-1]} is in use: stop what listens there")


def is_free(port: int) -> bool:
    """Whether nobody listens on this port."""
    return _is_done(lambda: socket.create_server(("127.0.0.1", port)).close())


def _is_done(binding: Callable[[], object]) -> bool:
    """Whether an address was not in use. Of any other error another port is no remedy."""
    try:
        binding()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
