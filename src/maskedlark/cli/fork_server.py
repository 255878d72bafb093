"""Forks the services of a local cluster from one process that has imported what they need.

Run by `simulate.forked`, as `python -m maskedlark.cli.fork_server` with its connection as standard input. A
service that starts from nothing spends a second on imports, and as much memory again on what they load.

Forked before anything of ours is opened or drawn: what services share is code, where it lies in memory, and
how Python hashes texts. Each has its own files, keys and draws: secrets come from the operating system;
OpenSSL and `random` seed themselves anew after a fork; numpy, and the key of Python's worker processes, are
told to.
"""

import fcntl
import gc
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress

import numpy as np

# Used by services, not here.
from maskedlark.cli import adserver, helper, parameters  # noqa: F401
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.forked import ENDED, NUMBER_BYTES
from maskedlark.storage import sqlite  # noqa: F401
from maskedlark.web import processes, serving  # noqa: F401

FILES = 3
"""Files that come with a request: the service's connection to who asked, standard output, standard error."""
Request = tuple[str, dict[str, str], str, list[str]]
"""A folder, an environment, a module, and its arguments."""


def run() -> Request:
    """Fork whenever asked. Returns in each service, with what is asked of it; the server itself ends here."""
    asking = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([asking, woken], [], [])
        if woken in ready:
            woken.recv(1024)
            _tell_who_ended(running)
        if asking in ready:
            request, files = _next(asking)
            pid = _fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for inherited in (asking, woken, wakes, *running.values()):
                    inherited.close()
                _become(files)
                return request
            connection, *others = files
            running[pid] = socket.socket(fileno=connection)
            with suppress(OSError):
                running[pid].sendall(pid.to_bytes(NUMBER_BYTES))
            for each in others:
                os.close(each)


def _next(asking: socket.socket) -> tuple[Request, list[int]]:
    """The next request, with the files of the service."""
    with suppress(ConnectionError):
        size, files, _, _ = socket.recv_fds(asking, NUMBER_BYTES, FILES)
        data, left = b"", int.from_bytes(size)
        # A service that ends interrupts a read, which then returns what there is.
        while left and (more := asking.recv(left)):
            data, left = data + more, left - len(more)
        if data and not left:
            folder, environment, module, *arguments = json.loads(data)
            return (folder, environment, module, arguments), files
    os._exit(0)  # Who asked has ended: services end by themselves, in order.


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of threads: of numpy's library, which ends and starts them around a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _tell_who_ended(running: dict[int, socket.socket]) -> None:
    """Write the exit code of each service that has ended to its connection."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with suppress(OSError), running.pop(pid) as connection:
            connection.sendall((ENDED + os.waitstatus_to_exitcode(status)).to_bytes(NUMBER_BYTES))


def _become(files: list[int]) -> None:
    """A service: in a group of its own, with its own files and draws."""
    os.setpgid(0, 0)  # Ctrl-C goes only to who started it, which stops it in order.
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, FILES) for each in files]
    for place, each in enumerate(above):
        os.dup2(each, place)
        os.close(each)
    for each in files:
        if each >= FILES:
            os.close(each)
    multiprocessing.current_process().authkey = SystemRandomness().bytes(32)
    np.random.seed()  # noqa: NPY002 - of what libraries may draw; nothing of ours uses it


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # What is there is every service's: none has to look at it.
    folder, environment, module, sys.argv[1:] = run()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # As `python -m` does it, so that a service's worker processes import its own module, not this one.
    runpy.run_module(module, run_name="__main__", alter_sys=True)
