"""What whoever watches workers sees of a step: how many records it is over, in which shards, and how long."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskedlark.compute.engine import Engine
from maskedlark.core.candidates import All
from maskedlark.core.declared import Model
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.helper import columns
from maskedlark.helper.columns import Places, ShardContents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.shards import StoredShard
from maskedlark.release.shards import Computation, ShardRows

Seen = tuple[tuple[int, ...], ...]
"""By worker: the size of every computation, one after the other."""


@dataclass(frozen=True)
class HeldShard:
    """Records that are pickled with their shard."""

    held: Records

    def __len__(self) -> int:
        return len(self.held)

    def records(self, rows: Places | None = None) -> Records:
        return self.held.select_rows(rows)


def stored(folder: Path, model: Model, pieces: Sequence[TrainingRecords]) -> list[StoredShard]:
    """The same in files, as freezing writes them."""
    files, shards = LocalFiles(folder), []
    files.make()
    for number, own in enumerate(pieces):
        shown = () if isinstance(model.policy, All) else own.candidates
        arrays: list[Any] = [own.ids, own.features, own.shares, *own.indices, *shown]
        written = {
            (name := columns.file_name(number, f"0-{column}")): columns.write(files, name, rows, kind.dtype)
            for (column, kind), rows in zip(columns.trained_columns(model).items(), arrays, strict=True)
        }
        contents = ShardContents(files=written, records={model.tag: len(own)})
        shards.append(StoredShard(files, number, contents, None, model))
    return shards


@dataclass(frozen=True)
class Counting:
    """A query that notes how many records every computation is over."""

    query: Any
    sizes: list[int] = field(default_factory=list)

    def over(self, records: Records, device: str) -> Any:
        self.sizes.append(len(records))
        return self.query.over(records, device)

    def over_rows(self, records: Any, rows: Any, counted: Any, device: str) -> Any:
        self.sizes.append(len(records) if rows is None else len(rows))
        return self.query.over_rows(records, rows, counted, device)

    def combined(self, partials: Sequence[Any]) -> Any:
        return self.query.combined(partials)


def counted(given: tuple[Callable[..., Any], Computation], rows: Sequence[ShardRows]) -> tuple[Any, Any]:
    """What `over` returns, and what it did. Run by a worker."""
    function, computation = given
    query: Any = Counting(computation.query)
    result = function(replace(computation, query=query), rows)
    return result, tuple(query.sizes)


@dataclass
class WatchedEngine:
    """Another engine, of whose workers everything is seen."""

    engine: Engine
    seen: list[Seen] = field(default_factory=list)

    @property
    def workers(self) -> int:
        return self.engine.workers

    def map(self, function: Callable[..., Any], common: Any, items: Sequence[Any]) -> list[Any]:
        made = self.engine.map(counted, (function, common), items)
        self.seen.append(tuple(sizes for _, sizes in made))
        return [result for result, _ in made]


@dataclass
class TimedEngine:
    """Another engine, and how long its workers took since the clock was set to 0."""

    engine: Engine
    took_s: float = 0.0

    @property
    def workers(self) -> int:
        return self.engine.workers

    def map(self, function: Callable[..., Any], common: Any, items: Sequence[Any]) -> list[Any]:
        start = time.perf_counter()
        made = self.engine.map(function, common, items)
        self.took_s += time.perf_counter() - start
        return made
