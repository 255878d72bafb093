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
    return engine.map(
        over, computation, [rows[place :: engine.workers] for place in range(min(engine.workers, len(rows)))]
    )


def over(computation: Computation, rows: Sequence[ShardRows]) -> Partial:
    """What some shards add. Run by a worker."""
    total = _over(computation, rows[0])
    for each in rows[1:]:
        total = computation.query.combined([total, _over(computation, each)])
    return total


def _over(computation: Computation, own: ShardRows) -> Partial:
    records = own.shard.records()
    if own.rows is not None:
        records = take(records, own.rows)
    if computation.randomised is not None:
        assert isinstance(records, TrainingRecords), "only labels are randomised"
        records = randomised.unbiased(records, *computation.randomised)
    if own.counted is not None:
        records = only_counted(records, own.counted)
    return computation.query.over(records, computation.device)


def take(records: Records, rows: Rows | range) -> TrainingRecords:
    """Only these records, in order."""
    assert isinstance(records, TrainingRecords), "only records to train have parts"
    shown = tuple(each if len(each) == 1 else each[rows] for each in records.candidates)
    return TrainingRecords(records.ids[rows], records.features[rows], shown, records.shares[rows])


def only_counted(records: Records, counted: NDArray[np.bool_]) -> TrainingRecords:
    """The same rows; those that do not count add 0 to every sum."""
    assert isinstance(records, TrainingRecords), "only records to train have parts"
    shares = records.shares * counted[:, None]
    return TrainingRecords(records.ids, records.features, records.candidates, shares)
