"""Atomic file writes: after a crash a file has the old bytes or the new ones. Run by every party."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from maskedlark.storage import file_lock
from maskedlark.storage.errors import StorageUnavailable

_log = logging.getLogger(__name__)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn a full or unavailable disk into an error of ours that says to try again later."""
    try:
        yield
    except OSError as error:
        _log.warning("%s cannot be written: %s", path, error.strerror)  # For the operator alone.
        raise StorageUnavailable("a file cannot be written now; try again later") from error


def write(path: Path, data: bytes) -> None:
    """Durably write the bytes to the path."""
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
    """Sync a folder: a new file name is durable only then."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, among all processes that use this function."""
    with ExitStack() as stack:
        with _named(folder):
            stack.enter_context(file_lock.held(folder / ".lock"))
        yield


def named(text: str) -> str:
    """A file name for an untrusted string: readable, never a path, unique per string."""
    return f"{quote(text, safe='')[:48]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
