"""Labels by cell of feature space: how many records of each label lie in every cell. Run by helpers.

The row of V is the one-hot of (cell of x, candidate label); the secret is the one-hot truth. Cells of a
clustering give labels to train any model with, cells of a model's scores evaluate it. Over whole datasets a
cell of fewer than k records is absent; buckets, which are in order, are counted together with their
neighbours until they hold k. Over a part that the ad server does not know (records held out of all batches,
or the others) every cell is there, whatever it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from maskedlark.core import field
from maskedlark.core.declared import MAX_FEATURES, MAX_NAMES
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments, WrongType
from maskedlark.exact import cells as exact
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.function import (
    Arguments,
    Column,
    Function,
    Group,
    Part,
    Partial,
    Query,
    Table,
    TableSchema,
    parse,
)
from maskedlark.functions.groups import Groups
from maskedlark.functions.model import DescribedModel, ModelFunction
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Name
from maskedlark.wire.message import Settings

CELL = "cell"
"""The name of a table's key: the cell's number."""
MAX_NUMBERS = 1 << 16
"""The most cells of one table times its labels."""
_BLOCK = 1 << 16
_AT_ONCE = 1 << 22
"""Records, and candidates of records, in memory at a time."""
_Output = Annotated[int, Field(ge=0, lt=MAX_FEATURES)]
_Count = Annotated[int, Field(ge=1, le=MAX_NUMBERS)]


class DescribedLargest(Settings):
    """Cells by which of these outputs is the largest, the first if tied."""

    kind: Literal["largest"] = "largest"
    first: _Output = 0
    count: _Count

    def partition(self) -> exact.Partition:
        """Converted to the engine's type."""
        return exact.Largest(self.first, self.count)


class DescribedBuckets(Settings):
    """Cells by how many ascending edges an output reaches."""

    kind: Literal["buckets"] = "buckets"
    output: _Output = 0
    edges: Annotated[tuple[float, ...], Field(max_length=1 << 12)]

    def partition(self) -> exact.Partition:
        """Converted to the engine's type."""
        return exact.Buckets(self.output, self.edges)


class DescribedHash(Settings):
    """Cells by a hash of these feature bytes."""

    kind: Literal["hash"] = "hash"
    features: Annotated[tuple[_Output, ...], Field(min_length=1, max_length=1 << 12)]
    count: _Count

    def partition(self) -> exact.Partition:
        """Converted to the engine's type."""
        return exact.Hashed(self.features, self.count)


class DescribedTable(Settings):
    """A table: one label, counted by these cells."""

    label: Annotated[int, Field(ge=0, lt=MAX_NAMES)] = 0
    cells: Annotated[DescribedLargest | DescribedBuckets | DescribedHash, Field(discriminator="kind")]
    ones: bool = False
    """Of a binary label, count 1 alone: a replaced label moves one number by 1, and not two."""

    def dense(self, rows: Sequence[Group], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """An answer's table as (cells, labels); absent cells are 0, and a run of buckets counts in its first.

        Run by the ad server.
        """
        count = self.cells.partition().count
        if list(rows) == [()]:
            return numbers.reshape(count, -1)
        cells = [row[0] for row in rows]
        if cells != sorted(set(cells) & set(range(count))):
            raise WrongType("the answer has cells that were not asked for")
        every = np.zeros((count, numbers.shape[1]), np.int64)
        every[np.array(cells, np.intp)] = numbers
        return every


class CellsArguments(Settings):
    """A network if cells are by its outputs, the tables, and which records they count."""

    tag: Name
    model: DescribedModel | None = None
    weights: str = ""
    """Encoded as in a step, then base64."""
    tables: Annotated[tuple[DescribedTable, ...], Field(min_length=1, max_length=MAX_NAMES)]
    part: Literal["all", "held_out", "training"] = "all"
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _fitting(self) -> "CellsArguments":
        if (self.part == "all") != (self.held_out == 0):
            raise ValueError("a part goes with held_out, the share kept out of batches; 'all' without")
        if (self.model is None) != (not self.weights):
            raise ValueError("a model goes with its weights")
        # Nobody but helpers knows how many of a part are in a cell, so 1 alone would give no rate. And
        # whether a record is in the part would move the answer by all of its sensitivity, not by less.
        if self.part != "all" and any(table.ones for table in self.tables):
            raise ValueError("over a part all labels are counted: leave out ones")
        return self


@dataclass(frozen=True)
class CellTable:
    """One table: a label's space, and the cells that it is counted by."""

    label: int
    space: LabelSpace
    partition: exact.Partition
    ones: bool

    @property
    def width(self) -> int:
        """Numbers per cell."""
        return 1 if self.ones else len(self.space)

    def column(self, cells: int) -> Column:
        """Of a row with so many cells: another label moves 1 from one number to another, or a single one."""
        sensitivity = Sensitivity(1, 1.0) if self.ones else Sensitivity(2, sqrt(2), touched=2)
        return Column(f"label {self.label}", sensitivity, 1, cells * self.width)

    def counts(self, records: TrainingRecords, cells: exact.Cells) -> Table:
        """A row per cell, whether or not it has records."""
        masks, shown = records.masks(self.label), records.candidates[self.label]
        if self.ones:
            masks, columns = field.total(masks * (shown == 1), axis=1)[:, None], np.zeros((1, 1), np.intp)
        else:
            columns = self.space.index(shown)
        count = self.partition.count
        counts = exact.counts(cells, masks, columns, (count, self.width))
        return Table(Groups((range(count),)), np.bincount(cells, minlength=count), (counts,))


@dataclass(frozen=True)
class CellsQuery(Query):
    """Labels of one model's records, by cell."""

    tag: str = dataclass_field()
    network: Network | None
    weights: Quantised | None
    asked: tuple[CellTable, ...]
    part: Part | None

    @cached_property
    def schemas(self) -> tuple[TableSchema, ...]:
        """A row per cell; over a hidden part one row with all cells."""
        if self.part is None:
            return tuple(TableSchema((CELL,), (each.column(1),), each.partition.count) for each in self.asked)
        return tuple(TableSchema((), (each.column(each.partition.count),)) for each in self.asked)

    def over(self, records: Records, device: str = "cpu") -> Partial:
        """A row per cell, in blocks whose candidates fit in memory."""
        assert isinstance(records, TrainingRecords), "a model's records are reports to train"
        partitions = [each.partition for each in self.asked]
        size = max(1, min(_BLOCK, _AT_ONCE // max(1, records.shares.shape[1])))
        partial: list[Partial] = []
        for start in range(0, max(1, len(records)), size):
            block = records.select_rows(slice(start, start + size))
            cells = exact.cells(self.network, self.weights, block.features, partitions, device=device)
            counts = [each.counts(block, own) for each, own in zip(self.asked, cells, strict=True)]
            partial = [self.combined([*partial, counts])]
        return partial[0]

    def tables(self, partials: Sequence[Partial], k: int) -> list[Table]:
        """Cells of at least k records, and runs of buckets that hold k; over a hidden part all cells."""
        every = zip(self.asked, self.combined(partials), strict=True)
        return [self._table(each, table, k) for each, table in every]

    def _table(self, asked: CellTable, every: Table, k: int) -> Table:
        sizes, (total,) = every.records, every.shares
        if self.part is not None:
            return Table([()], sizes.sum(keepdims=True), (total.reshape(1, -1),))
        if not isinstance(asked.partition, exact.Buckets):
            return every.at_least(k)
        first = _joined(sizes, k)
        row = np.searchsorted(first, np.arange(len(sizes)), side="right") - 1
        total = exact.counts(row, total, np.arange(asked.width)[None], (len(first), asked.width))
        runs = Groups((range(len(sizes)),), first.astype(np.int32)[None])
        return Table(runs, np.add.reduceat(sizes, first), (total,)).at_least(k)


def _joined(sizes: NDArray[np.int64], k: int) -> NDArray[np.intp]:
    """The first bucket of every run of neighbours that holds k records; what is left joins the last run."""
    first, held = [0], 0
    for bucket, size in enumerate(sizes.tolist()):
        if held >= max(k, 1):
            first.append(bucket)
            held = 0
        held += size
    return np.array(first if held >= k else first[:-1] or [0], np.intp)


class Cells(ModelFunction, Function):
    """Labels by cell."""

    name = "cells"

    def ask(self, document: Document, arguments: Arguments) -> Query:
        """Refuses a network that does not match the records, cells that it does not have, and too many."""
        asked = parse(CellsArguments, arguments)
        features = model.byte_features(document, asked.tag)
        spaces = [label.space() for label in document.trained(asked.tag).labels]
        tables = tuple(_table(each, spaces) for each in asked.tables)
        network = sent = None
        if asked.model is not None:
            # Losses are not needed here; those that are there are the labels'.
            check = asked.model.check if asked.model.losses else asked.model.check_features
            check(document, asked.tag)
            network, sent = asked.model.network, weights.from_text(asked.model.network, asked.weights)
        for table in tables:
            _check(table.partition, features, network)
        # Of one row, to refuse weights and cells out of range before anything is charged.
        exact.cells(network, sent, np.zeros((1, features), np.uint8), [each.partition for each in tables])
        part = None if asked.part == "all" else Part(asked.part, asked.held_out)
        return CellsQuery(asked.tag, network, sent, tables, part)


def _table(described: DescribedTable, spaces: Sequence[LabelSpace]) -> CellTable:
    if described.label >= len(spaces):
        raise BadArguments(f"the model has {len(spaces)} labels: {described.label} is none of their places")
    table = CellTable(described.label, spaces[described.label], described.cells.partition(), described.ones)
    if described.ones and table.space.values != (0, 1):
        raise BadArguments("only of a binary label can 1 be counted alone")
    if table.partition.count * table.width > MAX_NUMBERS:
        raise BadArguments(
            f"{table.partition.count} cells of {table.width} labels are over {MAX_NUMBERS} numbers: at most "
            f"{MAX_NUMBERS // table.width} cells fit"
        )
    return table


def _check(partition: exact.Partition, features: int, network: Network | None) -> None:
    """Refuse cells by features or outputs that are not there."""
    if isinstance(partition, exact.Hashed):
        if max(partition.features) >= features:
            raise BadArguments(f"the records have {features} features: hash some of 0 … {features - 1}")
        return
    outputs = 0 if network is None else network.layers[-1].linear.outputs
    last = partition.output + 1 if isinstance(partition, exact.Buckets) else partition.first + partition.count
    if last > outputs:
        raise BadArguments(f"cells by outputs up to {last - 1}, and the network has {outputs} outputs")
