"""One process per folder: two would remove each other's files. Run at a helper's start."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskedlark.helper.errors import FolderInUse


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the folder while the block runs. A process that ends, however it ends, releases it."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with (folder / ".running").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(f"another process runs on this folder: {folder}") from None
        yield
