"""Waiting for processes to end."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60


def are_gone(pids: Iterable[int]) -> bool:
    """Whether all of these end. A process that only waits to be looked at has ended."""
    deadline, left = time.monotonic() + PATIENCE_S, set(pids)
    while time.monotonic() < deadline:
        left = {pid for pid in left if _runs(pid)}
        if not left:
            return True
        time.sleep(0.05)
    return False


def with_argument(text: str) -> set[int]:
    """The processes that were started with this in one of their arguments."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
