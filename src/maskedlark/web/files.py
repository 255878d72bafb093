"""Files that survive a crash whole: the old bytes or the new ones, never half of each."""

import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from maskedlark.storage.errors import StorageUnavailable

_log = logging.getLogger(__name__)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A disk that is full, or away, is an error of ours: ask again later."""
    try:
        yield
    except OSError as error:
        _log.warning("%s cannot be written: %s", path, error.strerror)  # For the operator alone.
        raise StorageUnavailable("a file cannot be written now; try again later") from error


def write(path: Path, data: bytes) -> None:
    """Put the bytes at the path, durably, before returning."""
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync(path.parent)


def sync(folder: Path) -> None:
    """The new name is durable only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone in the folder, among all processes that ask the same way."""
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def named(text: str) -> str:
    """A file name for a text from outside: readable, never a path, different for different texts."""
    return f"{quote(text, safe='')[:48]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
