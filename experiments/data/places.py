"""Where data lies: `$MASKEDLARK_DATA`, `shared/data` beside the repository, or a cache, filled once."""

import gzip
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from maskedlark.errors import MaskedLarkError

VARIABLE = "MASKEDLARK_DATA"
_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
_PATIENCE_S = 10.0


class NotHere(MaskedLarkError):
    """Data, or a library, that this machine does not have: what is needed, and how to get it, in one line."""


class File(NamedTuple):
    """A file, gzipped: its place, what it must hold, and where else it can be had."""

    path: str
    sha256: str
    """Of what is in it, not of its gzip, which every packer writes anew."""
    source: str
    """Whose data it is, for who looks for it."""
    mirror: str | None = None


def folders() -> Sequence[Path]:
    """Where data is looked for, the cache last."""
    named = os.environ.get(VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maskedlark"
    return [Path(named)] if named else [_BESIDE, cache]


def read(file: File) -> bytes:
    """What the file holds, checked. Raises NotHere."""
    for folder in folders():
        path = folder / file.path
        if path.is_file():
            return _checked(file, path.read_bytes(), str(path))
    return _fetched(file)


def _checked(file: File, data: bytes, where: str) -> bytes:
    try:
        found = gzip.decompress(data)
    except (OSError, EOFError):
        raise NotHere(f"{where} is no gzip file: replace it") from None
    if hashlib.sha256(found).hexdigest() != file.sha256:
        raise NotHere(f"{where} holds other data than was measured with: replace it")
    return found


def _fetched(file: File) -> bytes:
    """From the mirror, into the cache."""
    needed = f"{file.path} ({file.source}) is needed: put it under a folder, and name that in {VARIABLE}"
    if file.mirror is None or VARIABLE in os.environ:
        raise NotHere(needed)
    try:
        answer = httpx.get(file.mirror, timeout=_PATIENCE_S, follow_redirects=True).raise_for_status()
    except httpx.HTTPError:
        raise NotHere(f"{needed}; its mirror cannot be reached either") from None
    found = _checked(file, answer.content, file.mirror)
    path = folders()[-1] / file.path
    # A folder that cannot be written costs the next process its own download, and nothing else.
    with suppress(OSError):
        _keep(path, answer.content)
    return found


def _keep(path: Path, data: bytes) -> None:
    """Whole or not at all: another process may look for it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
