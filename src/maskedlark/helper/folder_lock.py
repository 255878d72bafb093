"""Who runs on a folder: one process, or several over one database server."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from maskedlark.helper.errors import FolderInUse
from maskedlark.storage import file_lock
from maskedlark.storage.errors import LockHeld

_NAME = ".running"


@contextmanager
def only_process(folder: Path, shared: bool = False, name: str = _NAME) -> Iterator[None]:
    """Hold the folder while the block runs, alone or with others that share it.

    A process that ends, however it ends, releases it. Only processes over one database server may share it:
    what they decide by is there.
    """
    path = folder / name
    with ExitStack() as stack:
        try:
            handle = stack.enter_context(file_lock.held(path, shared=shared, wait=False))
        except LockHeld:
            raise FolderInUse(folder, path.read_text(errors="replace")[:20]) from None
        # Not emptied before the lock is ours: it holds the id of the process that has it alone.
        os.ftruncate(handle, 0)
        if not shared:
            os.write(handle, str(os.getpid()).encode())
        yield
