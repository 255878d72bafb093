"""The shards of a frozen dataset, as whoever computes over them opens them. Run by a helper's workers.

A process keeps the shards that it opened first, as many as fit, while they are in use. Every step visits all
of them in the same order: those that it used last would always be others than those that come next. The
others are read, and compared with what was written, whenever they are used.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, joined
from maskedlark.helper import columns
from maskedlark.helper.columns import ENTRIES, Contents, Places, ShardContents, Stored
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.parameters.document import Document

KEPT_BYTES = 512 << 20
"""Bytes of shards that a process keeps in memory."""
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

    def records(self, rows: Places | None = None) -> Records:
        """Its columns and shares, or those of some records to train."""
        return _OPENED.get(self, rows)

    @property
    def stored_bytes(self) -> int:
        """The bytes of its columns."""
        prefix = "" if isinstance(self.declared, Measure) else f"{self.place}-"
        names = columns.file_name(self.number, prefix)
        return sum(stored.size for name, stored in self.contents.files.items() if name.startswith(names))

    def open(self, rows: Places | None = None) -> Records:
        """Read them."""
        if isinstance(self.declared, Measure):
            assert self.entries is not None
            own = self.number, self.entries, self.declared
            return columns.read_measured(self.files, self.contents, *own)
        return columns.read_trained(self.files, self.contents, self.number, self.place, self.declared, rows)


_Name = tuple[DatasetFiles, int, int]


@dataclass
class _Kept:
    records: Records
    size: int
    used: float


@dataclass
class _OpenedShards:
    """The shards that this process keeps. Threads may share it."""

    _clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[_Name, _Kept] = field(default_factory=dict)

    def get(self, shard: StoredShard, rows: Places | None = None) -> Records:
        """The records of a shard, or some of them."""
        name, size, now = (shard.files, shard.number, shard.place), shard.stored_bytes, self._clock()
        with self._lock:
            if (kept := self._kept.get(name)) is not None:
                kept.used = now
            elif not self._has_room(size):
                self._kept = {each: kept for each, kept in self._kept.items() if now - kept.used < IDLE_S}
            has_room = self._has_room(size)
        if kept is None and not has_room:
            return shard.open(rows)
        records = shard.open() if kept is None else kept.records
        with self._lock:
            if kept is None and self._has_room(size):
                self._kept[name] = _Kept(records, size, now)
        return records if rows is None else records.select_rows(rows)

    def _has_room(self, size: int) -> bool:
        return not self._kept or sum(kept.size for kept in self._kept.values()) + size <= KEPT_BYTES

    def forget(self) -> None:
        """Close all of them."""
        with self._lock:
            self._kept.clear()


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
