"""A backup's list of what is in it, and copying files by it: each with its size and digest."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from maskedlark.helper.errors import BadBackup
from maskedlark.parameters.settings import Hex32, Name, Seconds, Settings

NAME = "manifest.json"
_BLOCK = 1 << 20


class Copied(Settings):
    """A file as it was copied."""

    size: Annotated[int, Field(ge=0)]
    sha256: Hex32


class Manifest(Settings):
    """Whose backup it is, of which moment, and its files by their paths in it."""

    format: Literal[1] = 1
    helper: Name
    taken: Seconds
    database: Literal["sqlite", "server"]
    """A server's is not in it: its own tools make its backup."""
    files: Mapping[Annotated[str, StringConstraints(pattern=r"^[!-.0-~]+(/[!-.0-~]+)*$")], Copied]


def read(folder: Path, helper: str) -> Manifest:
    """The list in a backup of this helper. Nothing that it lists was looked at yet."""
    try:
        found = Manifest.model_validate_json((folder / NAME).read_bytes())
    except FileNotFoundError:
        raise BadBackup(f"{folder} is no backup: it has no {NAME}") from None
    except ValidationError:
        raise BadBackup(f"{folder / NAME} was damaged or changed: take another backup") from None
    if found.helper != helper:
        raise BadBackup(f"{folder} is a backup of {found.helper}, not of {helper}")
    if any(".." in PurePosixPath(name).parts for name in found.files):
        raise BadBackup(f"{folder / NAME} names a file outside of it: take another backup")
    return found


def copy(source: Path, target: Path, wanted: Copied | None = None) -> Copied:
    """Copy a file, ours alone, durably but for its name. Refuses one that is not what is wanted."""
    digest, size = hashlib.sha256(), 0
    make_folder(target.parent)
    made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with source.open("rb") as reading, os.fdopen(made, "wb") as writing:
        while block := reading.read(_BLOCK):
            writing.write(block)
            digest.update(block)
            size += len(block)
        writing.flush()
        os.fsync(writing.fileno())
    found = Copied(size=size, sha256=digest.hexdigest())
    if wanted not in (None, found):
        target.unlink()
        raise BadBackup(f"{source} is not what it was: it was damaged or changed")
    return found


def make_folder(folder: Path) -> None:
    """A folder and those above it, as far as they are new: ours alone, all of them."""
    for each in reversed((folder, *folder.parents)):
        each.mkdir(0o700, exist_ok=True)


def copied(path: Path) -> Copied:
    """A file that is in its place already."""
    with path.open("rb") as file:
        return Copied(size=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
