"""Answers over records unknown to the ad server are kept, and not computed twice. Run by a helper.

The time to compute a batch may reveal something about it, and repeated requests could measure it repeatedly.
So an answer is kept until the next step of its session, or until its dataset expires, and computed again only
if a crash lost it. There is one file per session or request. It need not survive a crash of the machine, so
nothing waits for the disk. Its room is reserved first: an answer that cannot be kept would be computed again.
Processes that share the folder wait for each other at lock files.
"""

import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from maskedlark.storage import file_lock
from maskedlark.storage.errors import LockHeld, StorageUnavailable

_WRITING = ".writing-"
"""Room has the name of its lock, of which there are 256: none is ever removed."""
_HEAD = struct.Struct(">QQI32s")
"""Expiry, length, checksum, and digest of the request: a truncated file is no answer."""


class KeptAnswers:
    """Answers in a folder. Threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._locks = folder, folder.with_name("locks")
        self._tidy()

    @contextmanager
    def room(self, origin: str, request: bytes, size: int) -> Iterator[Path]:
        """A file with room for `size` bytes. One caller at a time per request, so that none computes it
        twice.
        """
        lock = _name(origin, request)[:2]
        with ExitStack() as stack:
            try:
                self._folder.mkdir(0o700, parents=True, exist_ok=True)
                stack.enter_context(file_lock.held(self._locks / f"answers-{lock}"))
            except OSError as error:
                raise _unavailable() from error
            reserved = self._reserve(f"{_WRITING}{lock}-", _HEAD.size + size)
            try:
                yield reserved
            finally:
                reserved.unlink(missing_ok=True)  # If it was not filled.

    def read(self, origin: str, request: bytes, asked: bytes) -> bytes | None:
        """The kept answer, if it is to this request; `asked` is a digest."""
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
        """Keep an answer in place of the previous one."""
        try:
            with room.open("r+b", buffering=0) as file:
                file.write(_HEAD.pack(expires, len(answer), zlib.crc32(answer), asked))
                file.write(answer)
                file.truncate()
            room.replace(self._folder / _name(origin, request))
        except OSError as error:
            raise _unavailable() from error

    def remove(self, origin: str, request: bytes) -> None:
        """Remove a closed session's answer: nothing of it is answered again."""
        name = _name(origin, request)
        try:
            # Not before a step that is being computed has kept its own.
            with file_lock.held(self._locks / f"answers-{name[:2]}"):
                (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable() from error

    def expire(self, now: int) -> None:
        """Remove expired answers. Run at the start, and every hour."""
        self._tidy()
        for path in self._folder.glob("[!.]*"):
            with suppress(FileNotFoundError):  # Its session was closed meanwhile.
                self._expire(path, now)

    @staticmethod
    def _expire(path: Path, now: int) -> None:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or _HEAD.unpack(head)[0] <= now:
            path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Remove what a process that has ended did not finish: nobody holds the lock of it."""
        for path in self._folder.glob(f"{_WRITING}*"):
            lock = path.name.removeprefix(_WRITING)[:2]
            with suppress(LockHeld), file_lock.held(self._locks / f"answers-{lock}", wait=False):
                path.unlink(missing_ok=True)

    def _reserve(self, prefix: str, size: int) -> Path:
        try:
            handle, path = tempfile.mkstemp(dir=self._folder, prefix=prefix)  # 0600
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                else:  # For systems without it, such as macOS.
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
