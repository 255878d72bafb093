"""Which code a process runs. Workers of another one might compute something else."""

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import NamedTuple

import maskedlark


class Fingerprint(NamedTuple):
    """Of a process."""

    version: str
    python: str
    sources: str
    """A digest of all files of this package, in case two trees have the same version."""


@cache
def fingerprint() -> Fingerprint:
    """Of this process, as it was when it started: files that change later are not what it runs."""
    home = Path(maskedlark.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(home).as_posix()} {len(content)}\n".encode() + content)
    return Fingerprint(maskedlark.__version__, platform.python_version(), digest.hexdigest())
