"""One process per folder: two would remove each other's files. Run at a helper's start."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskedlark.helper.errors import FolderInUse


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the folder while the block runs. A process that ends, however it ends, releases it."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    # Not emptied before the lock is ours: it holds the id of the process that has it.
    with (folder / ".running").open("a+") as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(folder, file.read(20)) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
