"""Release: the only way out for anything that depends on a secret. Run by a helper.

In this order: at least k records; the charge and a fresh noise seed, durable; the function's share; rows
below k dropped; noise from that seed; the answer with its receipt. The same request gets the same bytes, for
one charge: after a crash everything is computed again from the seed, and all of it is exact.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.errors import FieldOverflow
from maskedlark.privacy import mechanisms, parts
from maskedlark.privacy.accountant import Charge
from maskedlark.privacy.budget import Cost, Entry
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import (
    AnswerTooLarge,
    MixedDatasets,
    NoiseTooSmall,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.privacy.function import Column, Function, Question, Table
from maskedlark.privacy.ledger import Ledger
from maskedlark.privacy.lines import Charging
from maskedlark.privacy.messages import MOST_ANSWER, MOST_REQUEST, Answer, AnswerTable, Request
from maskedlark.privacy.settings import Mechanism
from maskedlark.wire.columns import MOST_KEY_TEXT

Seeds = Callable[[str, bytes], bytes]
"""The seed of the batches of an origin's dataset."""
Rows = NDArray[np.intp] | range


class Dataset(Protocol):
    """A sealed dataset at this helper."""

    digest: bytes
    document: Document
    purpose: Purpose

    def size(self, tag: str | None) -> int:
        """How many records it has, of this model."""

    def records(self, tag: str | None) -> Records:
        """Its columns and shares."""


@dataclass(frozen=True)
class Asked:
    """A request that this helper may answer, budget aside."""

    document: Document
    mechanism: Mechanism
    question: Question
    noise: float
    function: str
    datasets: tuple[Dataset, ...]
    records: int

    @property
    def charge(self) -> Charge:
        """Every column of every table is a release of its own, and they compose."""
        return Charge(self.mechanism.kind, self.noise, len(self.question.columns))

    def entry(self) -> Entry:
        """As the budget sees it."""
        return Entry(self.question.tag, tuple(each.digest for each in self.datasets), self.charge)


@dataclass(frozen=True)
class Explained:
    """What a request would cost, from document, dataset size and ledger alone."""

    asked: Asked
    cost: Cost
    noise_that_fits: float | None


class Desk:
    """Where questions are answered."""

    def __init__(self, ledger: Ledger, functions: Mapping[str, Function], seeds: Seeds | None = None) -> None:
        self._ledger = ledger
        self._functions = functions
        self._seeds = seeds

    @property
    def names(self) -> frozenset[str]:
        """The functions that are known here."""
        return frozenset(self._functions)

    def answer(self, body: bytes, request: Request, datasets: Sequence[Dataset]) -> Answer:
        """A helper's share of the answer. `body` is the request as it came: its digest is what is charged."""
        asked = self.check(request, datasets)
        charging = Charging(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            self._functions[request.function].version,
            asked.question.tag,
            tuple(dataset.digest for dataset in datasets),
            asked.charge,
        )
        # Charge first: a crash behind this line wastes budget, but never hides a release.
        line = self._ledger.charge(asked.document, charging)
        tables = self._share(asked)
        return Answer(line.receipt, [*_noised(asked, tables, line.seed)])

    def explain(self, request: Request, datasets: Sequence[Dataset]) -> Explained:
        """What the answer would cost, without spending anything."""
        asked = self.check(request, datasets)
        return Explained(asked, *self._ledger.explain(asked.document, asked.entry()))

    def check(self, request: Request, datasets: Sequence[Dataset]) -> Asked:
        """All that a request has to satisfy beside the budget. Looks at no record."""
        first = datasets[0]
        if len({each.digest for each in datasets}) < len(datasets):
            raise MixedDatasets("a dataset is named twice: each counts once")
        if any(
            (each.document.digest, each.purpose) != (first.document.digest, first.purpose)
            for each in datasets
        ):
            raise MixedDatasets("datasets of one request are of one purpose and document: ask for each apart")
        question = self._function(request.function, first.purpose).ask(first.document, request.arguments)
        mechanism = first.document.mechanisms[first.purpose.value]
        if request.noise < mechanism.noise_floor:
            raise NoiseTooSmall(f"noise {request.noise:g} is below the declared {mechanism.noise_floor:g}")
        records = sum(map(len, self._rows(question, datasets)))
        _check_size(first.document, records)
        for column in question.columns:
            _check_range(first.document, mechanism, request.noise, column)
        _check_answer(question, records // first.document.k)
        return Asked(
            first.document, mechanism, question, request.noise, request.function, tuple(datasets), records
        )

    def _function(self, name: str, purpose: Purpose) -> Function:
        if name not in self._functions:
            known = ", ".join(sorted(self._functions))
            raise UnknownFunction(f"no function {name!r} here; there are {known}")
        if self._functions[name].purpose is not purpose:
            raise OtherPurpose(f"{name} is over reports to {self._functions[name].purpose}, not to {purpose}")
        return self._functions[name]

    def _rows(self, question: Question, datasets: Sequence[Dataset]) -> list[Rows]:
        """Which records are asked for, by dataset. By seed and number alone: no record is looked at."""
        part, tag = question.part, question.tag
        if part is None or tag is None:
            return [range(each.size(tag)) for each in datasets]
        assert self._seeds is not None, "who answers about parts has seeds"
        return [
            parts.rows_of(part, self._seeds(each.document.origin, each.digest), tag, each.size(tag))
            for each in datasets
        ]

    def _share(self, asked: Asked) -> list[Table]:
        records = [dataset.records(asked.question.tag) for dataset in asked.datasets]
        if asked.question.part is not None:
            rows = self._rows(asked.question, asked.datasets)
            records = [parts.take(each, chosen) for each, chosen in zip(records, rows, strict=True)]
        return asked.question.share(records, asked.document.k)


def _check_size(document: Document, records: int) -> None:
    if records < document.k:
        raise TooFewRecords(f"fewer than k = {document.k} records: nothing is released over so few")
    if records > document.most_records:
        raise TooManyRecords(f"a release is over at most {document.most_records} records: ask over fewer")


def _check_answer(question: Question, rows: int) -> None:
    """Before charging: an answer that nobody could read is not worth its budget."""
    size = sum(
        rows * (sum(8 * column.width for column in plan.columns) + len(plan.by) * (MOST_KEY_TEXT + 2) + 9)
        for plan in question.plans
    )
    if size > MOST_ANSWER - MOST_REQUEST:
        raise AnswerTooLarge(
            f"the answer could take {size >> 20} MiB: ask for fewer values or groupings at once"
        )


def _check_range(document: Document, mechanism: Mechanism, noise: float, column: Column) -> None:
    """Before computing: no sum, with the noise of all helpers, may leave the field."""
    tail = mechanisms.tail(mechanism.kind, noise, column.sensitivity, len(document.helpers))
    if document.most_records * column.largest + tail > field.HALF:
        raise FieldOverflow(f"with noise {noise:g}, {column.name} could leave the field: ask for less noise")


def _noised(asked: Asked, tables: Sequence[Table], seed: bytes) -> Sequence[AnswerTable]:
    """The tables without rows below k, every column with noise of its own."""
    answered = []
    for number, (plan, table) in enumerate(zip(asked.question.plans, tables, strict=True)):
        kept = np.flatnonzero(table.records >= asked.document.k)
        columns = []
        for place, (column, share) in enumerate(zip(plan.columns, table.shares, strict=True)):
            assert share.shape == (len(table.rows), column.width), "a function returns what it planned"
            columns.append(_with_noise(asked, column, share[kept], column_seed(seed, number, place)))
        answered.append(AnswerTable([table.rows[row] for row in kept.tolist()], columns))
    return answered


def _with_noise(asked: Asked, column: Column, share: FieldArray, seed: bytes) -> FieldArray:
    noise = mechanisms.draw(asked.mechanism.kind, asked.noise, column.sensitivity, seed, share.size)
    return field.add(np.ascontiguousarray(share), field.from_signed(noise).reshape(share.shape))


def column_seed(seed: bytes, table: int, column: int) -> bytes:
    """A seed for every column: no two draws of one release share their noise.

    Run by helpers, and by who audits them with a helper's folder. `seed`: of the release, from the ledger.
    """
    return hashlib.sha256(
        b"maskedlark v1 noise" + seed + table.to_bytes(4, "big") + column.to_bytes(4, "big")
    ).digest()
