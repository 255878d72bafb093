"""Services forked from a process that has imported what they need (`cli.fork_server`).

Run by whoever plays all parties on one machine: four services then take the time and memory of one to start.
Each is a process like any other, with its own connections, files, keys and end.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import wait
from pathlib import Path

from maskedlark.web.errors import ServiceAway

NUMBER_BYTES = 8
"""Of a process id, and of what says how it ended."""
ENDED = 1 << 32
"""Added to an exit code: no number that is told is 0."""
_STANDARD_ERROR = 2


class ForkServer(AbstractContextManager["ForkServer"]):
    """The process that forks. It imports while its owner goes on, and ends with it."""

    def __init__(self) -> None:
        self._asking, theirs = _connected()
        with theirs:
            # Its own output is nobody's: else it would keep a pipe of its owner's open.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "maskedlark.cli.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                process_group=0,
            )
        self._lock = threading.Lock()

    def fork(self, arguments: Sequence[str]) -> "ForkedService":
        """Start Python with these arguments, `-m` first, in this folder. Returns before it runs.

        What libraries read of the environment as they are imported is of when the server was started.
        """
        request = json.dumps([str(Path.cwd()), dict(os.environ), *arguments[1:]]).encode()
        with self._lock:
            (mine, theirs), (reads, writes) = _connected(), os.pipe()
            forked = ForkedService(mine, reads)
            with theirs, os.fdopen(writes, "wb") as output:
                try:
                    files = theirs.fileno(), output.fileno(), _STANDARD_ERROR
                    socket.send_fds(self._asking, [len(request).to_bytes(NUMBER_BYTES)], files)
                    self._asking.sendall(request)
                except BaseException as error:
                    # A part of a request may be on its way: nothing can follow it, and the server ends.
                    self._asking.close()
                    forked.close()
                    if not isinstance(error, ConnectionError):
                        raise
                    raise ServiceAway("the process that starts services has ended: start again") from None
            return forked

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        self._process.terminate()  # It may be importing still.
        self._process.wait()


class ForkedService(AbstractContextManager["ForkedService"]):
    """A service that was forked: what is used of `subprocess.Popen`. Any thread may use it.

    Its standard input is a connection, to which the fork server writes its process id, and when it has ended
    its exit code.
    """

    def __init__(self, connection: socket.socket, output: int) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._told = bytearray(2 * NUMBER_BYTES)
        """Both numbers: 0 until they are told."""
        self._is_over = False
        self.stdout = os.fdopen(output, encoding="utf-8")

    @property
    def pid(self) -> int:
        """The id of the process, once it runs."""
        while not (pid := self._number(0)):
            if self._is_over:
                raise ServiceAway("the process that starts services ended before it started this one")
            self._hear(None)
        return pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, if it is known to have ended."""
        if number := self._number(NUMBER_BYTES):
            return number - ENDED
        return -signal.SIGKILL if self._is_over else None  # With the fork server, which cannot tell any more.

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        while self.returncode is None and self._hear(0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not self._hear(left) and left == 0:
                raise subprocess.TimeoutExpired("a service", timeout or 0)
        return self.returncode

    def terminate(self) -> None:
        """Tell it to stop in order."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def close(self) -> None:
        """Let go of it: a service that stops with its input does so now."""
        self.stdout.close()
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError, ServiceAway):
            pid = self.pid
            if self.poll() is None:
                os.kill(pid, number)

    def _number(self, place: int) -> int:
        with self._lock:  # Whole, or not at all.
            return int.from_bytes(self._told[place : place + NUMBER_BYTES])

    def _hear(self, timeout: float | None) -> bool:
        """Read what it was told, if anything is within this time; whether there was."""
        if not wait([self._connection], timeout):
            return False
        with self._lock, suppress(BlockingIOError):  # Another thread has read it.
            # Into its place, so that nothing is lost if Ctrl-C comes between this call and the next.
            place = NUMBER_BYTES if any(self._told[:NUMBER_BYTES]) else 0
            into = memoryview(self._told)[place:]
            if not self._connection.recv_into(into, NUMBER_BYTES, socket.MSG_DONTWAIT):
                self._is_over = True
        return True


def _connected() -> tuple[socket.socket, socket.socket]:
    """Two ends that wait, whatever a program has set for its sockets: a service reads its own as a file."""
    ends = socket.socketpair()
    for each in ends:
        each.setblocking(True)
    return ends
