"""Computing over shards: what one worker does for a query or a step. Run by a helper's workers.

A sum over records can be cut anywhere, and its bits stay the same. Which records are used may be hidden from
the ad server: then every shard is visited, and work of a public size is done in each, whoever is in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.batches import Rows
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.functions.function import Partial, Query
from maskedlark.parameters import randomised
from maskedlark.parameters.settings import TrainedModel

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")


class Shard(Protocol):
    """Consecutive records of a dataset. Pickled for whoever computes over them."""

    def __len__(self) -> int: ...

    def records(self) -> Records:
        """Its columns and shares."""


class Engine(Protocol):
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


def compute(engine: Engine, computation: Computation, rows: Sequence[ShardRows]) -> list[Partial]:
    """What all shards add. A worker always has the same ones, and adds up what they add."""
    busy = range(min(engine.workers, len(rows)))
    return engine.map(over, computation, [rows[place :: engine.workers] for place in busy])


def over(computation: Computation, rows: Sequence[ShardRows]) -> Partial:
    """What some shards add. Run by a worker."""
    total = _over(computation, rows[0])
    for each in rows[1:]:
        total = computation.query.combined([total, _over(computation, each)])
    return total


def _over(computation: Computation, own: ShardRows) -> Partial:
    records, query, device = own.shard.records(), computation.query, computation.device
    if own.counted is None:
        return query.over(records, device)
    assert isinstance(records, TrainingRecords), "only records to train have parts"
    if computation.randomised is None:
        return query.over_rows(records, own.rows, own.counted, device)
    batch = randomised.unbiased(records.taken(own.rows), *computation.randomised)
    return query.over(batch.only(own.counted), device)
