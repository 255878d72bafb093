"""What a function must say: its row, and how far one replaced secret can move its sum.

A function is one small file. No service knows its name: it parses its own arguments, says what it will
return, and computes a helper's share of it. What is below k, the charge and the noise are `release`'s.
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
from maskedlark.parameters.settings import Settings, faults

Group = tuple[Entry, ...]
Arguments = Mapping[str, Any]
"""A JSON object, as it came. The function refuses what it does not know."""
S = TypeVar("S", bound=Settings)


def parse(form: type[S], arguments: Arguments) -> S:
    """A function's arguments as they came, in their form. Raises what is wrong with them."""
    try:
        # Through JSON, which has lists where Python has tuples: strict about everything else.
        return form.model_validate_json(json.dumps(arguments))
    except ValidationError as error:
        raise BadArguments(faults(error)) from None
    except RecursionError:
        raise BadArguments("the arguments are nested deeper than any function's") from None


@dataclass(frozen=True)
class Column:
    """One number, or one vector, of every row of a table. It gets noise of its own, and is charged once."""

    name: str
    sensitivity: Sensitivity
    """Of a row, when the secret of one of its records is replaced by any other."""
    largest: int
    """The most that one record adds to a coordinate, up or down."""
    width: int = 1


@dataclass(frozen=True)
class Part:
    """Some of a model's records: those that are kept out of all batches, or the others."""

    which: Literal["held_out", "training"]
    held_out: float
    """The share that is kept out."""

    @property
    def share(self) -> float:
        """The share of all records that it has, as everybody knows it."""
        return self.held_out if self.which == "held_out" else 1 - self.held_out


@dataclass(frozen=True)
class TableSchema:
    """A table that will be returned: by which keys its rows differ, and its columns."""

    by: tuple[str, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, repr=False)
class Table:
    """A helper's share of a table: rows by group, the records in each, and columns of shape (rows, width)."""

    rows: Sequence[Group]
    records: NDArray[np.int64]
    shares: tuple[FieldArray, ...]


class Query(ABC):
    """A function with its arguments, checked against a document: known before any record is looked at."""

    tag: str | None = None
    """The model whose records are asked for; none to aggregate."""
    part: Part | None = None
    """Which of the records are asked for; none for all."""

    @property
    @abstractmethod
    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables, in order. A record may be in at most one row of each."""

    @abstractmethod
    def share(self, datasets: Sequence[Records], k: int) -> list[Table]:
        """A helper's share of every table, over the union of datasets. Linear in the records' shares.

        The same rows in the same order at every helper. Rows of fewer than k records may be left out; if
        they are not, `release` drops them.
        """

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of all tables: each is one release that composes with the others."""
        return tuple(column for schema in self.schemas for column in schema.columns)


class AnyFunction(ABC):
    """The paper's f, asked once or step by step. Its name stands in requests and receipts."""

    name: ClassVar[str]
    purpose: ClassVar[Purpose]
    version: ClassVar[int] = 1
    """Raised with every change of what it computes: an old question must not get a new answer."""

    @property
    def engine(self) -> str:
        """What the same share is computed with, at every helper. Answers of two engines add up to nothing."""
        return f"{self.name} {self.version}"


class Function(AnyFunction):
    """A function that is asked once, by a query."""

    @abstractmethod
    def ask(self, document: Document, arguments: Arguments) -> Query:
        """The question that these arguments make under a document. Raises what is wrong with them."""


class Steps(ABC):
    """A stepped function with what a session fixes: checked before the session is opened."""

    @abstractmethod
    def at(self, body: bytes, shared: bytes) -> Query:
        """The question of one step. Raises what is wrong with its body, before the step is taken.

        `shared` is a secret of all helpers, another for every step: what it makes random is the same at each.
        """


class SteppedFunction(AnyFunction):
    """A function that is asked again and again over batches: each step brings the rest of its arguments."""

    @abstractmethod
    def begin(self, document: Document, tag: str, arguments: Arguments) -> Steps:
        """What these arguments make under a document. Raises what is wrong with them."""
