"""Services as processes that need not import first: forked from one that has imported what they need.

Each is a process like any other, a child of the tests' own, with its own files, settings and end: it can be
stopped, waited for and killed. Only what `python -m maskedlark … serve` spends on imports, which is more than
a second each time, is spent once. Used by tests that start many; some, `tests/unit/cli/test_helper.py` among
them, start theirs from nothing.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

COMMANDS = (("parameters", "serve"), ("adserver", "serve"), ("helper", "serve"), ("helper", "rotate"))
CLIENTS = "tests.simulation.kills.clients"
FORKS = "maskedlark.cli.fork_server"
"""It forks in its turn, for one local cluster."""
NEEDED = (
    *("maskedlark.cli.parameters", "maskedlark.cli.adserver", "maskedlark.cli.helper"),
    *("maskedlark.parameter_service.app", "maskedlark.adserver.app", "maskedlark.helper.app"),
    *("maskedlark.web.serving", "maskedlark.storage.sqlite", "maskedlark.adserver.client"),
)
_SUBREAPER = 36
ROOT = Path(__file__).parents[1]


class Preloaded:
    """The process that forks others, started when the first is asked for."""

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)

    def close(self) -> None:
        if self._process is not None:
            self._mine.close()
            self._process.wait()

    def fork(self, wanted: dict[str, Any], files: tuple[int, int, int]) -> int | None:
        """A new child of this process that runs what is wanted: its id, or None if it cannot be made here."""
        if os.getpid() != self._owner:
            return None
        with self._lock:
            self._start()
            # It is orphaned by whoever forked it, and comes to us: so we can wait for it as for any child.
            self._libc.prctl(_SUBREAPER, 1)
            try:
                _send(self._mine, wanted, files)
                return int.from_bytes(_exactly(self._mine, 8))
            finally:
                self._libc.prctl(_SUBREAPER, 0)

    def _start(self) -> None:
        if self._process is not None:
            return
        self._mine, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", __name__, str(number)]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number])


def _send(connection: socket.socket, wanted: dict[str, Any], files: tuple[int, ...]) -> None:
    data = json.dumps(wanted).encode()
    socket.send_fds(connection, [len(data).to_bytes(8)], files)
    connection.sendall(data)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("the process that forks others has ended")
        found += part
    return found


_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def _is_known(arguments: Any) -> bool:
    if isinstance(arguments, str | bytes) or list(arguments[:2]) != [sys.executable, "-m"]:
        return False
    module, *words = arguments[2:]
    return module in (CLIENTS, FORKS) or (module == "maskedlark" and tuple(words[:2]) in COMMANDS)


@contextmanager
def installed() -> Iterator[None]:
    """Services that are started meanwhile are forked."""
    preloaded = Preloaded()
    names = _execute.__code__.co_varnames[1 : _execute.__code__.co_argcount]

    def execute(self: Any, *given: Any) -> None:
        asked = dict(zip(names, given, strict=True))
        pid = None
        if _is_known(asked["args"]) and not (asked["shell"] or asked["preexec_fn"] or asked["pass_fds"]):
            outer = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
            files = tuple(place if each == -1 else each for place, each in enumerate(outer))
            environment = os.environ if asked["env"] is None else asked["env"]
            wanted = {
                "parent": os.getpid(),
                "arguments": [*map(str, asked["args"][2:])],
                "folder": os.fspath(asked["cwd"] or Path.cwd()),
                "environment": dict(environment),
                "group": asked["process_group"],
                "session": asked["start_new_session"],
            }
            pid = preloaded.fork(wanted, files)  # type: ignore[arg-type]
        if pid is None:
            _execute(self, *given)
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*(asked[name] for name in names if name[:3] in ("p2c", "c2p", "err")))

    with mock.patch.object(subprocess.Popen, "_execute_child", execute):
        try:
            yield
        finally:
            preloaded.close()


# What follows is run by the process that forks others.


def _import() -> None:
    """What services need. No thread may run when this is done: a fork has only the one that forks."""
    for name in NEEDED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    # What is there is every child's: none has to look at it.
    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork again and again. Returns, in each child, what it was wanted for."""
    while True:
        with suppress(ConnectionError):
            size, files, _, _ = socket.recv_fds(connection, 8, 3)
        if not size:
            os._exit(0)
        wanted: dict[str, Any] = json.loads(_exactly(connection, int.from_bytes(size)))
        between = os.fork()
        if between:
            for each in files:
                os.close(each)
            os.waitpid(between, 0)
            continue
        child = os.fork()
        if child:
            os._exit(0)
        _become(wanted, files)
        connection.sendall(os.getpid().to_bytes(8))
        connection.close()
        return wanted


def _become(wanted: dict[str, Any], files: list[int]) -> None:
    """A child of whoever asked, with the files that it was given, before anybody hears of it."""
    while os.getppid() != wanted["parent"]:
        time.sleep(0.001)
    for place, each in enumerate(files):
        os.dup2(each, place)
        os.close(each)
    if wanted["session"]:
        os.setsid()
    elif wanted["group"] >= 0:
        os.setpgid(0, wanted["group"])


def main() -> None:
    """Import, fork, and be what was wanted: an exit is then as of any process."""
    _import()
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    module, *sys.argv[1:] = wanted["arguments"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
