"""Where the files of datasets are: on the helper's own disk, or sealed in storage that many machines reach.

Run by a helper and its workers. Files on its own disk are as they are. Anything else is another's disk, and
two helpers may rent theirs from one provider, which would then have all shares: so files are sealed with a
key that follows from the helper's identity, each bound to its name. No file is mapped: what is checked is in
memory of the process, where it cannot change.
"""

import hashlib
import hmac
import io
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import fsspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from maskedlark.helper.errors import DamagedDataset, UnreadableStorage
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import files

NONCE_BYTES = 12
PROBE = "probe-"
WRITING = ".writing-"
"""Before the name of a file that is not written to its end. If its writer was killed, it stays."""
_LABEL = b"maskedlark v2 dataset files"
Write = Callable[[BinaryIO], object]


class DatasetFiles(ABC):
    """A folder of files. Pickled with what workers do, so that they find it too."""

    @abstractmethod
    def within(self, name: str) -> "DatasetFiles":
        """The folder of this name in it."""

    @abstractmethod
    def make(self) -> None:
        """Create it, private; its name is durable when this returns."""

    @abstractmethod
    def write(self, name: str, write: Write) -> None:
        """Write a file, durable when this returns, except for the folder's own name.

        In place of what a worker left that ended while it wrote the same.
        """

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """A file, to be read. Raises `OSError` if it is not there."""

    @abstractmethod
    def data(self, name: str) -> np.ndarray:
        """A file's bytes, in memory of this process."""

    @abstractmethod
    def names(self) -> list[str]:
        """The files and folders in it; none if it is not there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""

    @abstractmethod
    def remove_all(self) -> None:
        """Remove the folder with all that is in it, if it is there."""

    def remove_if_empty(self) -> None:  # noqa: B027 - most storage has no folders
        """Remove the folder if nothing is in it, where storage has folders that are left behind."""

    def unique(self, prefix: str) -> str:
        """A name that nothing has."""
        return prefix + os.urandom(8).hex()


@dataclass(frozen=True)
class LocalFiles(DatasetFiles):
    """Files on the helper's own disk, as they are."""

    folder: Path

    def within(self, name: str) -> "LocalFiles":
        """The folder of this name in it."""
        return LocalFiles(self.folder / name)

    def make(self) -> None:
        """Create it, private; its name is durable when this returns."""
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        files.sync(self.folder.parent)

    def write(self, name: str, write: Write) -> None:
        """Write a new file: whole, or not at all. Whoever has an earlier one open keeps what it was."""
        # A worker that was cut off, and taken for ended, may come to this when the dataset is frozen.
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=WRITING)  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        files.sync(self.folder)

    def open(self, name: str) -> BinaryIO:
        """A file, to be read."""
        return (self.folder / name).open("rb")

    def data(self, name: str) -> np.ndarray:
        """A file's bytes, read."""
        data = np.fromfile(self.folder / name, np.uint8)
        data.flags.writeable = False
        return data

    def names(self) -> list[str]:
        """The files and folders in it."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []

    def remove(self, name: str) -> None:
        """Remove a file or folder."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_if_empty(self) -> None:
        """Remove the folder, unless something is in it."""
        with suppress(OSError):
            self.folder.rmdir()


@dataclass(frozen=True)
class SealedFiles(DatasetFiles):
    """Files in any storage that `fsspec` reaches, sealed with AES-256-GCM under the helper's key."""

    url: str
    key: bytes = field(repr=False)
    path: str = ""
    """Within the storage: what every file is bound to, besides its own name."""

    def within(self, name: str) -> "SealedFiles":
        """The folder of this name in it."""
        return SealedFiles(self.url, self.key, f"{self.path}{name}/")

    def make(self) -> None:
        """Create it, where storage has folders."""
        system, root = _system(self.url)
        with _reached(self.url):
            system.makedirs(f"{root}/{self.path}".rstrip("/"), exist_ok=True)

    def write(self, name: str, write: Write) -> None:
        """Seal and write a new file: whole, or not at all."""
        plain, nonce = io.BytesIO(), os.urandom(NONCE_BYTES)
        write(plain)
        sealed = nonce + AESGCM(self.key).encrypt(nonce, plain.getbuffer(), self._bound(name))
        system, root = _system(self.url)
        place = f"{root}/{self.path}{name}"
        if "file" in _protocols(system):
            files.write(Path(place), sealed)  # A file system of this machine may lose what is not synced.
            return
        with _reached(self.url):
            system.pipe_file(place, sealed)

    def open(self, name: str) -> BinaryIO:
        """A file, to be read."""
        return io.BytesIO(self._read(name))

    def data(self, name: str) -> np.ndarray:
        """A file's bytes, read."""
        return np.frombuffer(self._read(name), np.uint8)

    def names(self) -> list[str]:
        """The files and folders in it."""
        system, root = _system(self.url)
        try:
            with _reached(self.url, FileNotFoundError):
                listed = system.ls(f"{root}/{self.path}".rstrip("/"), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(str(each).rstrip("/").rsplit("/", 1)[-1] for each in listed)

    def remove(self, name: str) -> None:
        """Remove a file or folder."""
        system, root = _system(self.url)
        with _reached(self.url):
            if system.exists(place := f"{root}/{self.path}{name}"):
                system.rm(place, recursive=True)

    def remove_all(self) -> None:
        """Remove the folder."""
        above, _, name = self.path.rstrip("/").rpartition("/")
        SealedFiles(self.url, self.key, f"{above}/" if above else "").remove(name)

    def _bound(self, name: str) -> bytes:
        return f"{self.path}{name}".encode()

    def _read(self, name: str) -> bytes:
        system, root = _system(self.url)
        with _reached(self.url, FileNotFoundError):  # It is lost; anything else may pass.
            sealed = system.cat_file(f"{root}/{self.path}{name}")
        try:
            return AESGCM(self.key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._bound(name))
        except (InvalidTag, ValueError):
            raise DamagedDataset(f"the file {name} of a dataset was damaged or changed") from None


def key_of(secret: bytes) -> bytes:
    """The key of sealed files, from the secret that follows from a helper's identity."""
    return hmac.digest(secret, _LABEL, hashlib.sha256)


@contextmanager
def _reached(url: str, *expected: type[OSError]) -> Iterator[None]:
    """Turn failures of the storage, but for expected ones, into an error of ours that says to try again.

    Not only `OSError`: what `fsspec` loads for a bucket raises errors of the bucket's own library.
    """
    try:
        yield
    except expected:
        raise
    except Exception as error:
        raise StorageUnavailable(
            f"{url.split('?', maxsplit=1)[0]} cannot be read or written now; try again later"
        ) from error


@lru_cache(maxsize=8)
def _system(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URL, and the path in it."""
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        kind = url.partition("://")[0]
        # Not whatever it says of the URL, which may hold a password.
        why = str(error) if isinstance(error, ImportError) else "fsspec does not know it"
        raise UnreadableStorage(f"{kind}:// cannot be used as [compute] storage here: {why}") from None
    return system, str(path).rstrip("/")


def _protocols(system: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def write_probe(where: DatasetFiles) -> str:
    """Write a small file; returns its name. Run at a helper's start."""
    name = where.unique(PROBE)
    where.write(name, lambda file: file.write(name.encode()))
    return name


def read_probe(where: DatasetFiles, name: str) -> None:
    """Read such a file."""
    with where.open(name) as file:
        if file.read() != name.encode():
            raise DamagedDataset(f"the file {name} has other content")


def try_storage(where: DatasetFiles, name: str) -> tuple[str, str] | None:
    """What this process cannot do, and why: read what the helper wrote, or write. Run by every worker."""
    doing = "read"
    try:
        read_probe(where, name)
        doing = "write"
        own = write_probe(where)
        read_probe(where, own)
        where.remove(own)
    except StorageUnavailable as error:
        return doing, type(error.__cause__).__name__
    except Exception as error:  # noqa: BLE001 - whatever it is, this worker cannot do it
        return doing, type(error).__name__
    return None


def remove_probes(where: DatasetFiles) -> None:
    """Remove these files, also those of helpers that were killed. Run when no other process writes one."""
    for name in where.names():
        if name.startswith((PROBE, WRITING)):
            where.remove(name)
