"""Adds the helpers' shares up to the answer, if all answered the same query. Run by the ad server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.core import field, sharing
from maskedlark.dp.mechanisms import Kind
from maskedlark.functions.function import Arguments, Group, TableSchema
from maskedlark.ledger.receipt import Balance, ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.release.messages import Answer, AnswerTable


@dataclass(frozen=True)
class Combined:
    """One table of an answer: private numbers, with the noise of every helper in them."""

    schema: TableSchema
    rows: Sequence[Group]
    columns: tuple[NDArray[np.int64], ...]
    """In the schema's order: (rows, width) each."""

    def select(self, schema: TableSchema) -> "Combined":
        """The same numbers, with the columns in the order of another schema."""
        if schema == self.schema:
            return self
        columns = {
            each.name: numbers for each, numbers in zip(self.schema.columns, self.columns, strict=True)
        }
        return Combined(schema, self.rows, tuple(columns[each.name] for each in schema.columns))


@dataclass(frozen=True)
class Answered:
    """The answer to a query, as numbers, and what it cost."""

    request: str
    document: Document
    kind: Kind
    noise: float
    arguments: Arguments
    """The query's."""
    tables: tuple[Combined, ...]
    receipts: Mapping[str, ReleaseReceipt]
    """By helper, each verified."""

    @property
    def balance(self) -> Balance:
        """What a source has been charged, at the helper where the least is left."""
        return min((each.balance for each in self.receipts.values()), key=lambda each: each.left_epsilon)

    @property
    def helpers(self) -> int:
        """The number of helpers, whose noise is in every number."""
        return len(self.document.helpers)


def combine(schemas: Sequence[TableSchema], answers: Mapping[str, Answer]) -> tuple[Combined, ...]:
    """The tables that the helpers' shares add up to. Run by the ad server, on verified receipts."""
    names, first = list(answers), next(iter(answers.values()))
    for name, answer in answers.items():
        _check_form(name, schemas, answer)
        if [list(table.rows) for table in answer.tables] != [list(table.rows) for table in first.tables]:
            raise HelpersDiffer(f"{name} answered with other groups than {names[0]}: nothing is shown")
    tables = zip(*(answer.tables for answer in answers.values()), strict=True)
    return tuple(_combined(schema, shares) for schema, shares in zip(schemas, tables, strict=True))


def _check_form(name: str, schemas: Sequence[TableSchema], answer: Answer) -> None:
    if len(answer.tables) != len(schemas):
        raise HelpersDiffer(f"{name} answered with {len(answer.tables)} tables, not with {len(schemas)}")
    for schema, table in zip(schemas, answer.tables, strict=True):
        shapes = [column.shape for column in table.columns]
        asked = [(len(table.rows), column.width) for column in schema.columns]
        if shapes != asked or any(len(row) != len(schema.by) for row in table.rows):
            raise HelpersDiffer(f"{name} answered with columns or keys of another number than was asked")


def _combined(schema: TableSchema, shares: Sequence[AnswerTable]) -> Combined:
    rows = shares[0].rows
    added = map(sharing.combine, zip(*(share.columns for share in shares), strict=True))
    columns = [
        field.to_signed(numbers).reshape(len(rows), column.width)
        for column, numbers in zip(schema.columns, added, strict=True)
    ]
    return Combined(schema, rows, tuple(columns))
