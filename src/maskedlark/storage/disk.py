"""Whether files may still grow. Run by every service, where it keeps its data."""

import os
import resource
from pathlib import Path

from maskedlark.storage.errors import DiskFull

LEAST_ROOM = 16 << 20
"""Bytes: a chunk of a dataset, and more than SQLite's journal."""


def check(path: Path) -> None:
    """Return if a file, or those of a folder that may not be there yet, can grow; raise if not."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ROOM + (
        path.stat().st_size if path.is_file() else 0
    ):
        raise DiskFull("files of this service may not grow: raise the limit on their size (RLIMIT_FSIZE)")
    disk = os.statvfs(next(each for each in (path, *path.parents) if each.exists()))
    if (free := disk.f_bavail * disk.f_frsize) < LEAST_ROOM:
        raise DiskFull(f"a disk of this service has {free >> 20} MiB left: free some of it")
