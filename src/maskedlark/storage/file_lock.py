"""Locks in files, among threads, processes, and machines that share a folder. Run by every party.

A process that ends, however it ends, lets go of its locks. Lock files stay: one that is removed while
somebody waits for it would be held twice.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskedlark.storage.errors import LockHeld


@contextmanager
def held(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[int]:
    """Hold a lock, alone or shared with others; without `wait`, raise LockHeld. Yields its open file."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    # For writing: shared file systems give exclusive locks only then.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise LockHeld("another thread or process holds this lock") from None
        yield handle
    finally:
        os.close(handle)
