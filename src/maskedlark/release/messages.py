"""Queries to a helper, and its answers. Made and read by helpers and the ad server.

    request = {"id", "datasets", "function", "arguments", "noise"}            JSON; its digest is charged
    answer  = version (1 byte), receipt (a vector with 4 bytes of length), tables to the end
    table   = rows (4), keys per row (1), columns (2), keys row after row, columns
    key     = length (1), text;  or 255, a signed number (8)
    column  = numbers per row (4), field elements row after row

An answer is one helper's share: it reveals nothing until all are added up, and then only a private answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from maskedlark.core import field
from maskedlark.core.declared import MAX_NAMES
from maskedlark.core.field import FieldArray
from maskedlark.dp.mechanisms import MAX_NOISE, MIN_NOISE, Kind
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import MAX_STEPS
from maskedlark.errors import BadArguments, WrongLength, WrongType
from maskedlark.functions.function import Group, TableSchema
from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.settings import MAX_NUMBER, Name
from maskedlark.wire import binary
from maskedlark.wire.binary import Reader, number, vector
from maskedlark.wire.columns import NUMBER, NUMBER_BYTES, check_key
from maskedlark.wire.message import Encoded, Hex16, Hex32, Message

ANSWER_TYPE = "application/vnd.maskedlark.answer"
MAX_DATASETS = 4096
"""Hourly datasets of five months. Each adds 67 bytes to request and receipt, and an entry to the ledger."""
MAX_REQUEST = 6 << 20
"""Room for the weights of a network, in base64: of 784-4096-10 they take 4.4 MB at 8 bits."""
MAX_ANSWER = 64 << 20
MAX_TABLES = 64
MAX_COLUMNS = 1 << 10
MAX_ROWS = 1 << 20
MAX_SLOT = 1 << 52
Slot = Annotated[int, Field(ge=0, le=MAX_SLOT)]
_Number = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
_Cost = Annotated[float, Field(ge=0)]


class RequestBase(Message):
    """What a query and a session request have in common."""

    max_commas = 1 << 14
    """More than the datasets, values, groupings and filters of any function need."""
    other_format: ClassVar[str]
    format: Literal[2] = 2
    id: Hex16
    """Random: the same id is the same query or session, charged once."""
    datasets: Annotated[tuple[Hex32, ...], Field(min_length=1, max_length=MAX_DATASETS)]
    """By digest, as frozen."""

    @classmethod
    def refusal(cls, why: str) -> BadArguments:
        """Of an older format, which the first field states, nothing else is reported."""
        return BadArguments(cls.other_format if why.startswith("format: ") else why)


class Request(RequestBase):
    """A function with arguments, over datasets, with noise. Made by the ad server."""

    other_format = "this request is of another format: ask it anew with this version"
    function: Name
    arguments: dict[str, Any]
    noise: Annotated[float, Field(ge=MIN_NOISE, le=MAX_NOISE)]
    """Its scale, in units of the sensitivity: at least the document's floor."""


class SessionRequest(RequestBase):
    """A stepped function over batches of a model's records, for `steps` steps. Made by the ad server."""

    other_format = "this session is of another format: begin a new run"
    slots: Annotated[tuple[Slot, ...], Field(min_length=1, max_length=MAX_DATASETS)]
    """In every dataset, the slot of its first step: none of its slots may be another session's."""
    function: Name
    tag: Name
    arguments: dict[str, Any]
    noise: Annotated[float, Field(ge=MIN_NOISE, le=MAX_NOISE)] | None
    """None where the model's labels were randomised in the browser: then nothing is charged."""
    sampling: Sampling
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The session's own part of the model's δ."""

    @model_validator(mode="after")
    def _fitting(self) -> "SessionRequest":
        if len(self.slots) != len(self.datasets):
            raise ValueError("a session names one slot for every dataset")
        return self


@dataclass(frozen=True, repr=False)
class AnswerTable:
    """A table as it leaves a helper: its rows, and a share of every column with that helper's noise."""

    rows: Sequence[Group]
    columns: Sequence[FieldArray]

    def encode(self) -> bytes:
        """Its shape, keys, and columns as field elements."""
        keys = len(self.rows[0]) if self.rows else 0
        shape = number(len(self.rows), 4) + number(keys, 1) + number(len(self.columns), 2)
        columns = [number(column.shape[1], 4) + field.to_bytes(column) for column in self.columns]
        return b"".join([shape, *[_entry(key) for row in self.rows for key in row], *columns])


def flat(tables: Sequence[AnswerTable]) -> FieldArray:
    """All numbers of all tables, one after the other."""
    return np.concatenate([column.ravel() for table in tables for column in table.columns])


def cut(
    numbers: FieldArray, rows: Sequence[Sequence[Group]], widths: Sequence[Sequence[int]]
) -> list[AnswerTable]:
    """The tables that `flat` made these numbers of: their rows, and the widths of their columns."""
    tables, start = [], 0
    for groups, own in zip(rows, widths, strict=True):
        columns = []
        for width in own:
            end = start + len(groups) * width
            columns.append(numbers[start:end].reshape(len(groups), width))
            start = end
        tables.append(AnswerTable(groups, columns))
    return tables


def one_row_each(schemas: Sequence[TableSchema], numbers: FieldArray) -> list[AnswerTable]:
    """An answer over hidden records: one row per table, whatever the records."""
    widths = [[column.width for column in schema.columns] for schema in schemas]
    return cut(numbers, [[()]] * len(schemas), widths)


@dataclass(frozen=True, repr=False)
class Answer:
    """One helper's share of an answer, and its receipt."""

    receipt: SignedReceipt
    tables: Sequence[AnswerTable]

    def encode(self) -> bytes:
        """The same bytes for the same request, always."""
        tables = [table.encode() for table in self.tables]
        return b"".join([binary.VERSION_BYTE, vector(self.receipt.encode(), 4), *tables])


def decode_answer(data: bytes) -> Answer:
    """Run by the ad server. Checks only the form: the receipt is not verified yet."""
    if len(data) > MAX_ANSWER:
        raise WrongLength(f"an answer has at most {MAX_ANSWER} bytes, this one {len(data)}")
    reader = Reader.message(data, "an answer")
    signed, tables = receipt.decode(reader.vector(4, 1, MAX_ANSWER)), list[AnswerTable]()
    while reader.left and len(tables) < MAX_TABLES:
        tables.append(_table(reader))
    reader.end()
    if not tables:
        raise WrongLength("an answer without a table")
    return Answer(signed, tables)


def _table(reader: Reader) -> AnswerTable:
    rows, keys = reader.number(4, MAX_ROWS), reader.number(1, MAX_NAMES)
    columns = reader.number(2, MAX_COLUMNS)
    if columns == 0 or (rows == 0 and keys > 0):
        raise WrongLength("a table without columns, or keys without rows")
    groups = [tuple([_key(reader) for _ in range(keys)]) for _ in range(rows)]
    return AnswerTable(groups, [_column(reader, rows) for _ in range(columns)])


def _key(reader: Reader) -> str | int:
    size = reader.number(1)
    try:
        if size != NUMBER:
            key: str | int = reader.octets(size).decode()
        else:
            key = int.from_bytes(reader.octets(NUMBER_BYTES), "big", signed=True)
    except UnicodeDecodeError:
        raise WrongType("a key that is not UTF-8") from None
    check_key(key)
    return key


def _column(reader: Reader, rows: int) -> FieldArray:
    width = reader.number(4)
    if width == 0:
        raise WrongLength("a column without numbers")
    return field.from_bytes(reader.octets(rows * width * field.BYTES)).reshape(rows, width)


def _entry(key: str | int) -> bytes:
    """A key without the zeros that fill up a cell of a report."""
    if isinstance(key, str):
        return vector(key.encode(), 1)
    return bytes([NUMBER]) + key.to_bytes(NUMBER_BYTES, "big", signed=True)


class RecordCounts(Encoded):
    """How many records a frozen dataset has, and which slots are free. Made by a helper."""

    records: dict[Name, _Number]
    """By model."""
    shards: _Number
    """In how many shards this helper has them: every step visits each."""
    stored_bytes: dict[Name, _Number]
    """By model: the bytes of the records' columns."""
    free_slot: _Number
    """The first slot after all reserved ones."""


class ReceiptPage(Encoded):
    """Some of a helper's receipts in order, and whether more follow. Made by a helper, for anyone."""

    receipts: tuple[SignedReceipt, ...]
    more: bool


class _Explained(Encoded):
    """Part of an explanation. Its reader ignores unknown fields: nothing is charged by it."""

    model_config = ConfigDict(extra="ignore", strict=False)


class ExplainedSpending(_Explained):
    """What a source has cost."""

    epsilon: _Cost | None
    """Against the ad server alone. None if unbounded: JSON has no infinity."""
    coalition_epsilon: _Cost | None
    """Against it with all helpers but one."""
    delta: _Cost


class ExplainedCost(_Explained):
    """What a query would change."""

    before: ExplainedSpending
    after: ExplainedSpending
    charged_epsilon: _Cost | None
    charged_coalition_epsilon: _Cost | None
    charged_delta: _Cost
    left_epsilon: float | None
    """Of a source's budget. This and the next two are negative if it would be refused."""
    left_training_epsilon: float | None
    """Of what training may cost against the ad server; None for reports to aggregate, as is the next."""
    left_training_coalition_epsilon: float | None
    """Of what training may cost against the ad server with all helpers but one."""
    left_delta: float


class ExplainedColumn(_Explained):
    """How far the noise of all helpers together moves one number of a column."""

    name: str
    width: int
    standard_error: float
    half_width: float


class ExplainedTable(_Explained):
    """One table of an answer."""

    by: tuple[str, ...]
    columns: tuple[ExplainedColumn, ...]


class Explanation(_Explained):
    """What a query would cost, and how exact its answer would be. Made by a helper; nothing is charged."""

    function: str
    records: int
    shards: int
    """In how many shards this helper has the datasets' records, and the bytes of their columns: it reads all
    of them, from a disk or further away what does not fit into its memory."""
    stored_bytes: int
    k: int
    helpers: int
    mechanism: Kind
    noise: float
    cost: ExplainedCost
    noise_that_fits: float | None
    confidence: float
    tables: tuple[ExplainedTable, ...]
