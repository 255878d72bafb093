"""The shards of a frozen dataset, as whoever computes over them opens them. Run by a helper's workers.

A process keeps the shards that it opened first, as many as fit, while they are in use. Every step visits all
of them in the same order: those that it used last would always be others than those that come next. Where
files are on this disk they are mapped, and compared with their digest once; sealed ones are read and compared
whenever they are opened.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, joined
from maskedlark.helper import columns
from maskedlark.helper.columns import ENTRIES, Contents, ShardContents, Stored
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles
from maskedlark.parameters.document import Document

KEPT_SHARDS = 64
"""Shards that a process keeps open: each takes some open files."""
KEPT_BYTES = 512 << 20
"""Bytes of shards that a process keeps in memory, where they are not mapped."""

IDLE_S = 600.0
"""A shard that was not used for so long makes room for another."""


@dataclass(frozen=True, eq=False, repr=False)
class StoredShard:
    """A shard's records to aggregate, or those of one model. Pickled: workers find it by its files."""

    files: DatasetFiles
    number: int
    contents: ShardContents
    entries: Stored | None
    """The file of all keys' entries, to aggregate."""
    declared: Measure | Model
    place: int = 0
    """The model's place in its document."""

    def __len__(self) -> int:
        return self.contents.records["" if isinstance(self.declared, Measure) else self.declared.tag]

    def records(self) -> Records:
        """Its columns and shares."""
        return _OPENED.get(self)

    @property
    def stored_bytes(self) -> int:
        """The bytes of its columns."""
        prefix = "" if isinstance(self.declared, Measure) else f"{self.place}-"
        names = columns.file_name(self.number, prefix)
        return sum(stored.size for name, stored in self.contents.files.items() if name.startswith(names))

    def open(self, compared: bool) -> Records:
        """Read them. `compared`: their digests were, since this process began."""
        if isinstance(self.declared, Measure):
            assert self.entries is not None
            own = self.number, self.entries, self.declared
            return columns.read_measured(self.files, self.contents, *own, compared)
        return columns.read_trained(
            self.files, self.contents, self.number, self.place, self.declared, compared
        )


_Name = tuple[DatasetFiles, int, int]


@dataclass
class _Kept:
    records: Records
    size: int
    """In memory: 0 where it is mapped."""
    used: float


@dataclass
class _OpenedShards:
    """The shards that this process keeps. Threads may share it."""

    _clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[_Name, _Kept] = field(default_factory=dict)
    _compared: set[_Name] = field(default_factory=set)

    def get(self, shard: StoredShard) -> Records:
        """The records of a shard."""
        name, now = (shard.files, shard.number, shard.place), self._clock()
        with self._lock:
            if (kept := self._kept.get(name)) is not None:
                kept.used = now
                return kept.records
            compared = name in self._compared
        records = shard.open(compared)
        mapped = isinstance(shard.files, LocalFiles)
        own = _Kept(records, 0 if mapped else shard.stored_bytes, now)
        with self._lock:
            if mapped:
                self._compared.add(name)
            if not self._has_room(own.size):
                self._kept = {each: kept for each, kept in self._kept.items() if now - kept.used < IDLE_S}
            if self._has_room(own.size):
                self._kept[name] = own
        return records

    def _has_room(self, size: int) -> bool:
        total = sum(kept.size for kept in self._kept.values())
        return not self._kept or (len(self._kept) < KEPT_SHARDS and total + size <= KEPT_BYTES)

    def forget(self) -> None:
        """Close all of them."""
        with self._lock:
            self._kept.clear()
            self._compared.clear()


_OPENED = _OpenedShards()


def forget(*_: object) -> None:
    """Close what this process has open: columns of what has expired must not stay in memory."""
    _OPENED.forget()
    columns.forget()


@dataclass(eq=False)
class FrozenDataset:
    """A frozen dataset for queries. Threads may share it."""

    digest: bytes
    document: Document
    purpose: Purpose
    expires: int
    files: DatasetFiles
    contents: Contents

    def size(self, tag: str | None) -> int:
        """The number of records, of this model. Touches no file."""
        return self.contents.records.get(tag or "", 0)

    def shards(self, tag: str | None) -> list[StoredShard]:
        """Its shards, in order."""
        models = self.document.declared_models
        declared = self.document.measure if tag is None else models[tag]
        place, entries = 0 if tag is None else list(models).index(tag), self.contents.files.get(ENTRIES)
        return [
            StoredShard(self.files, number, own, entries, declared, place)
            for number, own in enumerate(self.contents.shards)
        ]

    def stored_bytes(self, tag: str | None) -> int:
        """The bytes of a model's columns, in all shards."""
        return sum(shard.stored_bytes for shard in self.shards(tag))

    def records(self, tag: str | None) -> Records:
        """All of its records as one: for who looks into a helper's folder. Helpers compute over shards."""
        return joined([shard.records() for shard in self.shards(tag)])
