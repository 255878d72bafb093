"""Several processes of one service on one port. Run by a service whose database is a server's.

The parent listens and passes its socket on: whichever process is free takes the next connection, and one that
dies loses only what it had in hand. The parent holds no key, answers nothing, and starts again what dies.
Children end at once with a parent that is killed, so that nobody holds the port whom nobody stops.
"""

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import NamedTuple

from maskedlark.compute.child_process import follow_parent
from maskedlark.storage.engine import is_server
from maskedlark.web.config import Serving
from maskedlark.web.errors import BadConfig
from maskedlark.web.serving import Inherited, address, listen

AGAIN_S = 1.0
"""From one start of a process to the next, at least."""
FREE_WITHIN_S = 20.0
"""For a port: children of a killed parent notice that only once they have imported everything."""
LOOK_S = 0.2
"""How often the parent looks whether it was told to stop."""
_NO_FAILURE = 0, -signal.SIGTERM
"""The latter of a process that was told to stop before it served."""
_SPAWN = multiprocessing.get_context("spawn")
_log = logging.getLogger(__name__)

Serve = Callable[[Inherited], None]
"""What a child does until it is told to stop. It is pickled."""


def refuse_file(settings: Serving, database: str) -> None:
    """Refuse several processes over a file: each would decide by what it has in memory."""
    if settings.processes > 1 and not is_server(database):
        raise BadConfig(
            f"processes = {settings.processes} needs a database server, and this database is SQLite: write "
            'processes = 1 in [serving], or database = "postgresql://user@host/name"'
        )


def supervise(settings: Serving, serve: Serve) -> int:
    """Run so many children until SIGINT or SIGTERM; returns the exit code. Run by a service, in its place."""
    with listen(settings.host, settings.port, FREE_WITHIN_S) as listening:
        return _Parent(settings, listening, serve).run()


def run_child(serve: Serve, inherited: Inherited) -> None:
    """Serve until told to stop by the parent, or until it has ended. Run by a child."""
    os.setpgid(0, 0)  # Ctrl-C goes only to the parent: a second signal would end this one at once.
    follow_parent()
    serve(inherited)


class _Child(NamedTuple):
    process: SpawnProcess
    ready: Connection
    began: float


class _Parent:
    """Starts children, and starts again those that end."""

    def __init__(self, settings: Serving, listening: socket.socket, serve: Serve) -> None:
        self._settings, self._listening, self._serve = settings, listening, serve
        self._children: dict[int, _Child] = {}
        self._is_stopping = False
        self._code = 0

    def run(self) -> int:
        """Start all, keep all running, and stop all."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, self._pass_on)
        where = address(self._listening, self._settings)
        # The first alone: it makes missing tables, and what it cannot begin with is said once.
        metrics = self._begin(range(1)) + self._begin(range(1, self._settings.processes))
        if not self._is_stopping:
            print(f"listening on {where}", *(f"metrics on {each}" for each in metrics), sep="\n", flush=True)
        while self._children:
            self._look()
        return self._code

    def _begin(self, places: range) -> list[str]:
        """Start children; returns where their metrics are, once they serve. If one fails, all end."""
        for place in places:
            self._start(place)
        said = [self._first_word(place) for place in places if place in self._children]
        return [metrics for metrics in said if metrics]

    def _first_word(self, place: int) -> str | None:
        try:
            word: str | None = self._children[place].ready.recv()
        except EOFError:
            self._children[place].process.join()
            self._stop()
            return None
        return word

    def _start(self, place: int) -> None:
        if self._should_stop():
            return
        ready, says = _SPAWN.Pipe(duplex=False)
        with says:
            inherited = Inherited(self._listening, place, says)
            process = _SPAWN.Process(target=run_child, args=(self._serve, inherited))
            process.start()
        self._children[place] = _Child(process, ready, time.monotonic())
        if self._should_stop():  # Told so meanwhile: this one was not there yet.
            process.terminate()

    def _look(self) -> None:
        """Wait a moment for children to end, and start them again, unless all should."""
        if self._is_stopping:
            # Nobody would answer who is let in by this one alone.
            self._listening.close()
        connection.wait([each.process.sentinel for each in self._children.values()], LOOK_S)
        for place, child in [*self._children.items()]:
            if child.process.is_alive():
                continue
            del self._children[place]
            child.ready.close()
            code = child.process.exitcode or 0
            if self._is_stopping:
                self._code = self._code or (0 if code in _NO_FAILURE else max(code, 1))
                continue
            _log.error("process %d ended with %d: it is started again", place, code)
            time.sleep(max(0.0, child.began + AGAIN_S - time.monotonic()))
            self._start(place)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        """First signal: stop all in order. Second: end at once, and the children with us."""
        if self._is_stopping:
            os._exit(128 + number)
        self._stop()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """To children that have said that they serve: the others have yet to read what it is about."""
        for child in self._children.values():
            if child.ready.poll() and child.process.is_alive():
                os.kill(child.process.pid or 0, number)

    def _should_stop(self) -> bool:
        return self._is_stopping

    def _stop(self) -> None:
        if self._is_stopping:
            return  # Twice would end the children at once.
        self._is_stopping = True
        for child in self._children.values():
            child.process.terminate()
