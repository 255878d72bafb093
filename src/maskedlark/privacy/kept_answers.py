"""Answers over records that the ad server does not know are kept, and not computed twice. Run by a helper.

How long a batch takes to compute may tell something of it, and who asks the same thing again and again could
measure that as often as it likes. So an answer is kept until the next step of its session, or until its
dataset expires, and is computed again only after a crash that lost it. One file for a session or request; it
need not survive a crash of the machine, so nothing waits for the disk.
"""

import hashlib
import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskedlark.storage.errors import StorageUnavailable

_LOCKS = 64
_WRITING = ".writing-"
_HEAD = struct.Struct(">Q32s32s")
"""When it expires, what was asked, and the digest of the answer: a file that broke off is none."""


class KeptAnswers:
    """Answers in a folder. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A few for all: two that share one wait for each other now and then.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        for path in folder.glob(f"{_WRITING}*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def alone(self, origin: str, request: bytes) -> Iterator[None]:
        """One at a time for a session or request: who asks twice at once must not be answered by two."""
        with self._locks[int(_name(origin, request), 16) % _LOCKS]:
            yield

    def read(self, origin: str, request: bytes, asked: bytes) -> bytes | None:
        """The answer to what was asked last, if it is this; `asked` is a digest."""
        try:
            data = (self._folder / _name(origin, request)).read_bytes()
        except FileNotFoundError:
            return None
        answer = data[_HEAD.size :]
        if len(data) < _HEAD.size or _HEAD.unpack_from(data)[1:] != (asked, hashlib.sha256(answer).digest()):
            return None
        return answer

    def write(self, origin: str, request: bytes, asked: bytes, answer: bytes, expires: int) -> None:
        """Keep an answer in place of the one before."""
        data = _HEAD.pack(expires, asked, hashlib.sha256(answer).digest()) + answer
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=self._folder, prefix=_WRITING)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(path).replace(self._folder / _name(origin, request))
        except OSError as error:
            raise StorageUnavailable("the answer cannot be kept now; try again later") from error

    def remove(self, origin: str, request: bytes) -> None:
        """The session is closed: nothing of it is answered again."""
        (self._folder / _name(origin, request)).unlink(missing_ok=True)

    def expire(self, now: int) -> None:
        """Remove what is past its time. Run at the start, and every hour."""
        for path in self._folder.glob("[!.]*"):
            with path.open("rb") as file:
                head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or _HEAD.unpack(head)[0] <= now:
                path.unlink(missing_ok=True)


def _name(origin: str, request: bytes) -> str:
    return hashlib.sha256(request + origin.encode()).hexdigest()
