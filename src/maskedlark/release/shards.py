"""Computing over shards: what one worker does for a query or a step. Run by a helper's workers.

A sum over records can be cut anywhere, and its bits stay the same. Which records are used may be hidden from
the ad server: then every shard is visited, and work of a public size is done in each, whoever is in it.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.batches import Rows
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.functions.function import Partial, Query
from maskedlark.parameters import randomised
from maskedlark.parameters.settings import TrainedModel
from maskedlark.release.under_way import UNDER_WAY

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")
_CPU = "cpu"
"""Where no copy is kept: only what is computed over is made unbiased."""
ROUNDS, PIECE = 16, 8
"""In how many rounds a query is computed at most. Of how many shards for each worker at least, by groups."""


class Shard(Protocol):
    """Consecutive records of a dataset. Pickled for whoever computes over them."""

    def __len__(self) -> int: ...

    def records(self, rows: NDArray[np.intp] | None = None, /) -> Records:
        """Its columns and shares, or those of some records to train."""


class Workers(Protocol):
    """Runs a pure function on every item, item i on worker i."""

    workers: int

    def map(self, function: Callable[[C, T], R], common: C, items: Sequence[T], /) -> list[R]:
        """Its results, in the order of the items."""


@dataclass(frozen=True, repr=False)
class Computation:
    """What is computed over every shard."""

    query: Query
    randomised: tuple[TrainedModel, int] | None = None
    """Where browsers randomised the labels, their model and the number of helpers: it is undone here."""
    device: str = "cpu"


@dataclass(frozen=True, repr=False)
class ShardRows:
    """A shard, the places of the records to compute over, and which of them count. None: all of them."""

    shard: Shard
    rows: Rows | None = None
    counted: NDArray[np.bool_] | None = None


def compute(engine: Workers, computation: Computation, rows: Sequence[ShardRows]) -> list[Partial]:
    """What all shards add. A worker always has the same ones, and adds up what they add."""
    busy = range(min(engine.workers, len(rows)))
    return engine.map(over, computation, [rows[place :: engine.workers] for place in busy])


def compute_counted(engine: Workers, computation: Computation, rows: Sequence[ShardRows]) -> list[Partial]:
    """The same in rounds that are counted, for what may take long. The rounds follow from how many shards."""
    # By groups a shard takes moments, and every round brings answers that may have a million rows.
    piece = PIECE if any(schema.by for schema in computation.query.schemas) else 1
    rounds = max(1, min(ROUNDS, len(rows) // (engine.workers * piece)))
    # A multiple of the workers: each has the same shards as in `compute`. No shard is left for a last round
    # of its own, which this process would compute.
    each = max(1, engine.workers * -(-len(rows) // (engine.workers * rounds)))
    ends = [*range(each, len(rows) - 1, each), len(rows)]
    partials: list[Partial] = []
    with UNDER_WAY.counted("query", len(rows)) as progress:
        for start, end in pairwise([0, *ends]):
            if start:  # Not all rounds' answers at once.
                partials = [computation.query.combined(partials)]
            partials += compute(engine, computation, rows[start:end])
            progress(end)
    return partials


def over(computation: Computation, rows: Sequence[ShardRows]) -> Partial:
    """What some shards add. Run by a worker."""
    total = _over(computation, rows[0])
    for each in rows[1:]:
        total = computation.query.combined([total, _over(computation, each)])
    return total


def _over(computation: Computation, own: ShardRows) -> Partial:
    query, device = computation.query, computation.device
    rows = None if own.rows is None else own.rows.astype(np.intp)
    records = own.shard.records(rows if device == _CPU else None)
    if own.counted is None:
        return query.over(records, device)
    assert isinstance(records, TrainingRecords), "only records to train have parts"
    if computation.randomised is not None:
        unbiased = randomised.unbiased if device == _CPU else _unbiased
        records = unbiased(records, *computation.randomised)
    return query.over_rows(records, None if device == _CPU else rows, own.counted, device)


_UNBIASED: dict[tuple[int, TrainedModel, int], TrainingRecords] = {}


def _unbiased(records: TrainingRecords, declared: TrainedModel, helpers: int) -> TrainingRecords:
    """All of a shard, kept while the shard is: a device keeps its copy of it that long."""
    name = id(records), declared, helpers
    if (made := _UNBIASED.get(name)) is None:
        made = _UNBIASED[name] = randomised.unbiased(records, declared, helpers)
        weakref.finalize(records, _UNBIASED.pop, name, None)
    return made
