"""Faults: where the process of a party ends, its disk is full, its database is away, or a message is lost.

A step has at most one, at a counted place: the same schedule meets it again. What a dead party would still
do on its way out (delete a temporary file, roll back) does not happen, as if the power had gone.
"""

import errno
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy.exc import OperationalError

from maskedlark.adserver import datasets, remote_helper
from maskedlark.helper import fair_scheduler
from maskedlark.storage.database import Database

CHUNK_BYTES = 5000
"""Chunks of a few reports, so that small datasets have several."""


class Crash(BaseException):
    """The process of a party ends here. Nothing catches it but the simulation."""


class Kind(StrEnum):
    """What goes wrong."""

    CRASH = "crash"
    """Around a durable step, or around a message: before it, or behind it."""
    FULL = "full disk"
    AWAY = "database away"
    LOST_REQUEST = "request lost"
    LOST_ANSWER = "answer lost"
    DELAYED = "request delayed"
    """The sender gives up; it arrives in a later step, or never."""
    COPIED = "request copied"
    """It arrives now, and perhaps again later."""
    TWICE = "request twice"


@dataclass(frozen=True)
class Fault:
    """The fault of a step: at the so manieth place where it could be."""

    kind: Kind
    at: int


@dataclass
class Faults:
    """Whose code runs now, and what becomes of it."""

    injected: Counter[str] = field(default_factory=Counter)
    dead: set[str] = field(default_factory=set)
    _running: list[str] = field(default_factory=list)
    _armed: Fault | None = None
    _seen: int = 0

    def arm(self, fault: Fault | None) -> None:
        """The fault of the step that begins."""
        self._armed, self._seen = fault, 0

    @contextmanager
    def running(self, party: str) -> Iterator[None]:
        """The code of a party runs; of the innermost one, where several wait for each other."""
        self._running.append(party)
        try:
            yield
        finally:
            self._running.pop()

    def is_due(self, kind: Kind) -> bool:
        """Whether the fault of this step is here. Asking counts a place."""
        if self._armed is None or self._armed.kind is not kind:
            return False
        self._seen += 1
        if self._seen <= self._armed.at:
            return False
        self._armed = None
        self.injected[kind] += 1
        return True

    def point(self) -> None:
        """A place where the running party may end."""
        if not self._running:
            return
        who = self._running[-1]
        if who not in self.dead and self.is_due(Kind.CRASH):
            self.dead.add(who)
        if who in self.dead:
            raise Crash(who)

    def file_point(self) -> None:
        """A file is about to be durable: the disk may be full."""
        self.point()
        if self._running and self.is_due(Kind.FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def database_point(self, kind: Kind, words: str) -> None:
        """The database is used: it may be away, or its disk full."""
        self.point()
        if self._running and self.is_due(kind):
            raise OperationalError("a statement", None, sqlite3.OperationalError(words))


class Inline:
    """An executor that does everything at once, one call after another: runs are alike."""

    def __init__(self, *_: object) -> None:
        """However many there are, and whatever they are called."""

    def __enter__(self) -> "Inline":
        return self

    def __exit__(self, *_: object) -> None:
        """Everything is done already."""

    def shutdown(self, cancel_futures: bool) -> None:
        """Nothing waits."""

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - as an executor does; a crash ends all threads at once
            future.set_exception(error)
        return future


@contextmanager
def installed(faults: Faults) -> Iterator[None]:
    """Durable steps of all parties pass by here. Nothing waits for a disk: a process ends, not the power."""
    write, read = Database.write, Database.read
    replace, unlink, rmtree = Path.replace, Path.unlink, shutil.rmtree

    @contextmanager
    def writing(self: Database) -> Iterator[Any]:
        with write(self) as connection:
            faults.database_point(Kind.AWAY, "disk I/O error")
            yield connection
            faults.database_point(Kind.FULL, "database or disk is full")
        faults.point()

    @contextmanager
    def reading(self: Database) -> Iterator[Any]:
        with read(self) as connection:
            faults.database_point(Kind.AWAY, "disk I/O error")
            yield connection

    def syncing(_handle: int) -> None:
        faults.file_point()

    def replacing(self: Path, target: Path) -> Path:
        faults.point()
        found = replace(self, target)
        faults.point()
        return found

    def unlinking(self: Path, missing_ok: bool = False) -> None:
        faults.point()
        unlink(self, missing_ok)

    def removing(path: Path, ignore_errors: bool = False) -> None:
        faults.point()
        with suppress(OSError):
            rmtree(path, ignore_errors)

    with ExitStack() as stack:
        for target, name, changed in (
            (Database, "write", writing),
            (Database, "read", reading),
            (os, "fsync", syncing),
            (Path, "replace", replacing),
            (Path, "unlink", unlinking),
            (shutil, "rmtree", removing),
            (remote_helper, "ThreadPoolExecutor", Inline),
            (fair_scheduler, "ThreadPoolExecutor", Inline),
            (datasets, "CHUNK_BYTES", CHUNK_BYTES),
        ):
            stack.enter_context(mock.patch.object(target, name, changed))
        yield
