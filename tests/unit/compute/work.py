"""Functions that engines run in tests. Workers import them by name."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import NoReturn

from maskedlark.functions.function import TableSchema
from maskedlark.helper import shards
from maskedlark.helper.errors import FolderInUse
from maskedlark.wire.errors import OutOfRange

SECRET = "a share, which nobody may read"


def multiply(common: int, item: int) -> int:
    return common * item


class Adding:
    """A query over shards that are numbers: it adds them up."""

    def __init__(self, *by: str) -> None:
        self.schemas = (TableSchema(by, ()),)

    def over(self, records: int, device: str) -> int:
        return records

    def combined(self, partials: list[int]) -> int:
        return sum(partials)


class Number:
    """A shard of one record."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return 1

    def records(self, _rows: object = None) -> int:
        return self.number


def double(item: int) -> int:
    return 2 * item


def process_of(common: object, item: object) -> int:
    return os.getpid()


def nap(item: float) -> int:
    time.sleep(item)
    return os.getpid()


def identity_of(common: object, item: object) -> tuple[int, int]:
    return os.getpid(), id(common)


def reversed_bytes(common: bytes, item: bytes) -> bytes:
    return item[::-1] + common


def read(folder: Path, item: int) -> str:
    return (folder / "probe").read_text()


def fail_from(first: int, item: int) -> int:
    if item >= first:
        raise OutOfRange(f"item {item}")
    return item


def fail_with_arguments(item: Path) -> NoReturn:
    raise FolderInUse(item, "1234")


def fail_as_a_library(item: str) -> NoReturn:
    raise KeyError("a key")


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def fail_unsendable(item: str) -> NoReturn:
    raise HoldsALock(item)


def end_once(marks: Path, item: int) -> int:
    """Ends the worker of each item the first time that it is run."""
    mark = marks / str(item)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def end_always(common: str, item: int) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def wait_for(mark: Path, item: int) -> int:
    """Says that it runs, and ends when it is told to."""
    (mark / f"begun-{item}").touch()
    while not (mark / "go").exists():
        time.sleep(0.02)
    return os.getpid()


def keep_one_shard(_: object, __: object) -> None:
    """Keep the first shard in memory, and read all others whenever they are used."""
    shards.KEPT_BYTES = 1


def kept_shards(_: object, __: object) -> int:
    """How many shards this process keeps in memory."""
    return len(shards._OPENED._kept)
