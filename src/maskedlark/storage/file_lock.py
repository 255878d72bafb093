"""Locks in files, among threads, processes, and machines that share a folder. Run by every party.

A process that ends, however it ends, lets go of its locks; its forked children have none of them. Lock
files stay: one that is removed while somebody waits for it would be held twice.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskedlark.errors import MaskedLarkError
from maskedlark.storage.errors import LockHeld

_HELD = set[int]()
"""Open files of locks that this process holds or waits for."""


@contextmanager
def held(
    path: Path, *, shared: bool = False, wait: bool = True, refusal: MaskedLarkError | None = None
) -> Iterator[int]:
    """Hold a lock, alone or shared with others; without `wait`, raise if it is held. Yields its open file."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    # For writing: shared file systems give exclusive locks only then.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _HELD.add(handle)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise refusal or LockHeld("another thread or process holds this lock") from None
        yield handle
    finally:
        _HELD.discard(handle)
        os.close(handle)


def _leave_to_parent() -> None:
    """A lock lasts while any process has its file open: a forked child has another file in its place."""
    other = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for handle in _HELD:
        os.dup2(other, handle, inheritable=False)
    os.close(other)
    _HELD.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
