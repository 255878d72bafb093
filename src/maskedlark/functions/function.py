"""The interface of a function: its row, and how far one replaced secret can move its sum. Run by helpers.

A function is one small file, unknown to the services: it parses its own arguments, declares the tables it
returns, and computes what one shard of a dataset adds to a helper's share of them. Shards are added up here;
k, the charge and the noise are handled by `release`.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.functions import groups
from maskedlark.functions.groups import Groups, Places
from maskedlark.parameters.document import Document
from maskedlark.wire.message import Settings, faults

Group = groups.Group
Arguments = Mapping[str, Any]
"""A JSON object as received. The function refuses unknown keys."""
_AT_ONCE = 16
"""What so many shards add is in memory at a time."""
S = TypeVar("S", bound=Settings)


def parse(form: type[S], arguments: Arguments) -> S:
    """Parse a function's arguments. Raises if they are invalid."""
    try:
        # Through JSON, where lists are valid tuples; everything else is strict.
        return form.model_validate_json(json.dumps(arguments))
    except ValidationError as error:
        raise BadArguments(faults(error)) from None
    except RecursionError:
        raise BadArguments("the arguments are nested deeper than any function's") from None


@dataclass(frozen=True)
class Column:
    """A number or vector in every row of a table. It gets its own noise, and is charged once."""

    name: str
    sensitivity: Sensitivity
    """The sensitivity of a row to replacing the secret of one of its records."""
    largest: int
    """The largest magnitude that one record adds to a coordinate."""
    width: int = 1
    largest_l2: float = math.inf
    """The largest L2 norm of what one record adds: how far it lies from an absent record, which adds 0."""

    @property
    def allows_amplification(self) -> bool:
        """Whether a record moves the sum by at most half of the sensitivity when it comes or goes."""
        return 2 * self.largest_l2 <= self.sensitivity.l2


@dataclass(frozen=True)
class Part:
    """Part of a model's records: those held out of all batches, or the others."""

    which: Literal["held_out", "training"]
    held_out: float
    """The share held out."""

    @property
    def share(self) -> float:
        """The part's share of all records, which is public."""
        return self.held_out if self.which == "held_out" else 1 - self.held_out


@dataclass(frozen=True)
class TableSchema:
    """A table that will be returned: the keys of its rows, and its columns."""

    by: tuple[str, ...]
    columns: tuple[Column, ...]
    most_rows: int | None = None
    """How many rows there can be, if the function knows; one if there are no keys."""


@dataclass(frozen=True, repr=False)
class Table:
    """A helper's share of a table: rows by group, the records in each, and columns of shape (rows, width)."""

    rows: Sequence[Group]
    records: NDArray[np.int64]
    shares: tuple[FieldArray, ...]

    def select_rows(self, rows: Places) -> "Table":
        """Only these rows, given in ascending order."""
        return self if len(rows) == len(self.records) else self._in(rows)

    def _in(self, rows: Places) -> "Table":
        kept = Groups.of(self.rows).select_rows(rows)
        return Table(kept, self.records[rows], tuple(share[rows] for share in self.shares))

    def ordered(self) -> "Table":
        """Rows in the order of their keys."""
        order = Groups.of(self.rows).order()
        return self if order is None else self._in(order)

    def at_least(self, k: int) -> "Table":
        """Only groups of k records; never one without any."""
        return self.select_rows(np.flatnonzero(self.records >= max(k, 1)))


Partial = Sequence[Table]
"""What some of the records add: every table with all of its groups, however few records they have."""


def added(tables: Sequence[Table]) -> Table:
    """What several shards add to one table, in any order.

    Some groups may be empty: those that no shard has, of a table of all combinations of its keys.
    """
    rows, places = groups.united([Groups.of(table.rows) for table in tables])
    records = np.zeros(len(rows), np.int64)
    shares = [np.zeros((len(rows), share.shape[1]), np.int64) for share in tables[0].shares]
    for table, place in zip(tables, places, strict=True):
        if place is None:
            records += table.records
            for total, share in zip(shares, table.shares, strict=True):
                field.accumulate(total, share)
        else:  # A table has every group once.
            records[place] += table.records
            for total, share in zip(shares, table.shares, strict=True):
                total[place] = field.add(total[place], np.ascontiguousarray(share))
    return Table(rows, records, tuple(shares))


class Query(ABC):
    """A function with its arguments, checked against a document before any record is read.

    It is pickled for the processes that compute, without what it cached.
    """

    tag: str | None = None
    """The model whose records are queried; None to aggregate."""
    part: Part | None = None
    """Which of the records are queried; None for all."""
    may_lack_rows: bool = False
    """Whether rows of more records than a release may be over are left out, as those below k are. If not,
    all records together must be few enough."""

    @property
    @abstractmethod
    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables, in order. A record may be in at most one row of each."""

    @abstractmethod
    def over(self, records: Records, device: str = "cpu") -> Partial:
        """What one shard adds to a helper's share of every table. Pure; run by a worker.

        Linear in the records' shares. A shard may have no records. Rows below k are there too: others may
        have the rest of them.
        """

    def over_rows(
        self,
        records: TrainingRecords,
        rows: NDArray[np.intp] | None,
        counted: NDArray[np.bool_],
        device: str = "cpu",
    ) -> Partial:
        """What some records of a shard add, None for all; those that are not counted add nothing."""
        return self.over(records.select_rows(rows).zero_others(counted), device)

    def combined(self, partials: Sequence[Partial]) -> Partial:
        """What several shards add, as one. Run by a worker over its shards: it has less to send then."""
        return [added(tables) for tables in zip(*partials, strict=True)]

    def tables(self, partials: Sequence[Partial], k: int) -> list[Table]:
        """A helper's share of every table, from what all shards add. Run by the helper's own process.

        The same rows, order and bits at every helper, however records were cut into shards. Groups below k
        are left out; a row without keys stays, and `release` drops it.
        """
        every = zip(self.schemas, self.combined(partials), strict=True)
        return [table.ordered().at_least(k) if schema.by else table for schema, table in every]

    def share(self, shards: Sequence[Records], k: int) -> list[Table]:
        """A helper's share of every table, computed here, one shard after the other."""
        partials: list[Partial] = []
        for records in shards:
            partials.append(self.over(records))
            if len(partials) == _AT_ONCE:
                partials = [self.combined(partials)]
        return self.tables(partials, k)

    def __getstate__(self) -> dict[str, object]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of all tables: each is one release that composes with the others."""
        return tuple(column for schema in self.schemas for column in schema.columns)


class AnyFunction(ABC):
    """The paper's f, queried once or step by step. Requests and receipts contain its name."""

    name: ClassVar[str]
    purpose: ClassVar[Purpose]
    version: ClassVar[int] = 1
    """Raised with every change of what it computes: an old query must not get a new answer."""

    @property
    def engine(self) -> str:
        """The engine that all helpers must share: answers of different engines do not add up."""
        return f"{self.name} {self.version}"


class Function(AnyFunction):
    """A function that is queried once."""

    @abstractmethod
    def ask(self, document: Document, arguments: Arguments) -> Query:
        """The query of these arguments under a document. Raises if they are invalid."""

    def canonical(self, arguments: Arguments) -> Arguments:
        """The same for arguments that ask the same. Run by the ad server, to find what was asked before.

        Their tables may differ in the order of columns, which have different names then, and in nothing else.
        """
        return arguments


class Steps(ABC):
    """A stepped function with its session's arguments, checked before the session is opened."""

    allows_amplification: bool = False
    """Whether the columns of all steps will: the session is charged before they are known."""

    @abstractmethod
    def at(self, body: bytes, shared: bytes) -> Query:
        """The query of one step. Raises if its body is invalid, before the step is claimed.

        `shared` is a secret of all helpers, different for every step, that makes their randomness the same.
        """


class SteppedFunction(AnyFunction):
    """A function that is queried repeatedly over batches: each step brings the rest of its arguments.

    Unknown Poisson batches lower its ε only if its steps declare `allows_amplification`: no record adds more
    than half of the sensitivity, in L2. A function whose label adds 0 or all of it costs far more.
    """

    @abstractmethod
    def begin(self, document: Document, tag: str, arguments: Arguments) -> Steps:
        """The steps of these arguments under a document. Raises if they are invalid."""
