"""The interface of a function: its row, and how far one replaced secret can move its sum. Run by helpers.

A function is one small file, unknown to the services: it parses its own arguments, declares the tables it
returns, and computes a helper's share of them. k, the charge and the noise are handled by `release`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Entry, Records
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.parameters.document import Document
from maskedlark.wire.message import Settings, faults

Group = tuple[Entry, ...]
Arguments = Mapping[str, Any]
"""A JSON object as received. The function refuses unknown keys."""
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


class Query(ABC):
    """A function with its arguments, checked against a document before any record is read."""

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
    def share(self, datasets: Sequence[Records], k: int) -> list[Table]:
        """A helper's share of every table, over the union of datasets. Linear in the records' shares.

        The same rows and order at every helper. Rows below k may be left out; else `release` drops them.
        """

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


class Steps(ABC):
    """A stepped function with its session's arguments, checked before the session is opened."""

    @abstractmethod
    def at(self, body: bytes, shared: bytes) -> Query:
        """The query of one step. Raises if its body is invalid, before the step is claimed.

        `shared` is a secret of all helpers, different for every step, that makes their randomness the same.
        """


class SteppedFunction(AnyFunction):
    """A function that is queried repeatedly over batches: each step brings the rest of its arguments."""

    @abstractmethod
    def begin(self, document: Document, tag: str, arguments: Arguments) -> Steps:
        """The steps of these arguments under a document. Raises if they are invalid."""
