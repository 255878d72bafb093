"""Answers over records that the ad server does not know are kept, and not computed twice. Run by a helper.

How long a batch takes to compute may tell something of it, and who asks the same thing again and again could
measure that as often as it likes. So an answer is kept until the next step of its session, or until its
dataset expires, and is computed again only after a crash that lost it. One file for a session or request; it
need not survive a crash of the machine, so nothing waits for the disk. Room for it is made before anything is
computed: an answer that could not be kept would be computed again.
"""

import hashlib
import os
import struct
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from maskedlark.storage.errors import StorageUnavailable

_WRITING = ".writing-"
_HEAD = struct.Struct(">QQI32s")
"""When it expires, its length and checksum, and what was asked: a file that broke off is no answer."""


class KeptAnswers:
    """Answers in a folder. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._busy: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        for path in folder.glob(f"{_WRITING}*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def room(self, origin: str, request: bytes, size: int) -> Iterator[Path]:
        """A file with room for so many bytes; one at a time for a session or request.

        Who asks twice at once must not be answered by two.
        """
        with self._lock:
            busy = self._busy.setdefault(_name(origin, request), threading.Lock())
        with busy:
            found = self._reserve(_HEAD.size + size)
            try:
                yield found
            finally:
                found.unlink(missing_ok=True)  # If it was not filled.

    def read(self, origin: str, request: bytes, asked: bytes) -> bytes | None:
        """The answer to what was asked last, if it is this; `asked` is a digest."""
        try:
            data = (self._folder / _name(origin, request)).read_bytes()
        except FileNotFoundError:
            return None
        if len(data) < _HEAD.size:
            return None
        _, size, checksum, kept = _HEAD.unpack_from(data)
        answer = data[_HEAD.size :]
        return answer if (len(answer), zlib.crc32(answer), kept) == (size, checksum, asked) else None

    def write(
        self, room: Path, origin: str, request: bytes, asked: bytes, answer: bytes, expires: int
    ) -> None:
        """Keep an answer in place of the one before."""
        try:
            with room.open("r+b", buffering=0) as file:
                file.write(_HEAD.pack(expires, len(answer), zlib.crc32(answer), asked))
                file.write(answer)
                file.truncate()
            room.replace(self._folder / _name(origin, request))
        except OSError as error:
            raise _unavailable() from error

    def remove(self, origin: str, request: bytes) -> None:
        """The session is closed: nothing of it is answered again."""
        (self._folder / _name(origin, request)).unlink(missing_ok=True)

    def expire(self, now: int) -> None:
        """Remove what is past its time. Run at the start, and every hour."""
        for path in self._folder.glob("[!.]*"):
            with suppress(FileNotFoundError):  # Its session was closed meanwhile.
                self._expire(path, now)

    @staticmethod
    def _expire(path: Path, now: int) -> None:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or _HEAD.unpack(head)[0] <= now:
            path.unlink(missing_ok=True)

    def _reserve(self, size: int) -> Path:
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=self._folder, prefix=_WRITING)  # 0600
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                else:  # Where there is none, as on macOS.
                    os.write(handle, bytes(size))
            except BaseException:
                Path(path).unlink()
                raise
            finally:
                os.close(handle)
        except OSError as error:
            raise _unavailable() from error
        return Path(path)


def _unavailable() -> StorageUnavailable:
    return StorageUnavailable("there is no room to keep the answer: nothing was computed, try again later")


def _name(origin: str, request: bytes) -> str:
    return hashlib.sha256(request + origin.encode()).hexdigest()
