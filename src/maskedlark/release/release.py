"""Release: the only way out for anything that depends on a secret. Run by a helper.

In this order: at least k records; the charge and a fresh noise seed, durable; the function's share; rows
below k dropped; noise from that seed; a mask, so that the answer is uniform by itself; the answer with its
receipt. The same request gets the same bytes, for one charge: after a crash everything is computed again from
the seed, and all of it is exact. Where the ad server does not know which records are asked for, the rules are
those of a step (`steps`): work of a size that everybody may know, noise alone below k, and an answer that is
kept and not computed twice.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from maskedlark.core import batches, field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.dp import mechanisms
from maskedlark.dp.accountant import Charge
from maskedlark.errors import FieldOverflow, NoiseTooSmall
from maskedlark.functions.function import Column, Function, Question, Table
from maskedlark.ledger.budget import Cost, Entry
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.lines import Charging, Line
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Mechanism
from maskedlark.release import messages, parts, zero_sum
from maskedlark.release.errors import (
    AnswerTooLarge,
    MixedDatasets,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import MOST_ANSWER, MOST_REQUEST, Answer, AnswerTable, Request
from maskedlark.wire.columns import MOST_KEY_TEXT

Seeds = Callable[[Document, bytes], bytes]
"""The seed that the helpers of a dataset share, by its document and digest."""


_MOST_AROUND = 1 << 16
"""A receipt and the frame of an answer take less."""


class Dataset(Protocol):
    """A sealed dataset at this helper."""

    digest: bytes
    document: Document
    purpose: Purpose
    expires: int

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
    """As everybody may know it: of a part, the share of all records that it has."""

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

    def __init__(
        self, helper: str, ledger: Ledger, functions: Mapping[str, Function], seeds: Seeds, kept: KeptAnswers
    ) -> None:
        self._helper, self._ledger, self._functions = helper, ledger, functions
        self._seeds, self._kept = seeds, kept

    @property
    def names(self) -> frozenset[str]:
        """The functions that are known here."""
        return frozenset(self._functions)

    def answer(self, body: bytes, request: Request, datasets: Sequence[Dataset]) -> Answer:
        """A helper's share of the answer. `body` is the request as it came: its digest is what is charged."""
        asked = self.check(request, datasets)
        seeds = [self._seeds(each.document, each.digest) for each in datasets]
        charging = Charging(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            self._computed(asked),
            asked.question.tag,
            tuple(dataset.digest for dataset in datasets),
            asked.charge,
            min(dataset.expires for dataset in datasets),
        )
        # Charge first: a crash behind this line wastes budget, but never hides a release.
        line = self._ledger.charge(asked.document, charging)
        if asked.question.part is None:
            return self._answer(asked, charging, line, seeds)
        return self._kept_answer(asked, charging, line, seeds)

    def _kept_answer(self, asked: Asked, charging: Charging, line: Line, seeds: Sequence[bytes]) -> Answer:
        """Computed once: how long it takes may tell something of records that the ad server does not know."""
        origin = asked.document.origin
        with self._kept.room(origin, charging.request, _MOST_AROUND + _most_bytes(asked.question, 1)) as room:
            if (before := self._kept.read(origin, charging.request, charging.question)) is not None:
                return messages.decode_answer(before)
            answer = self._answer(asked, charging, line, seeds)
            kept = answer.encode()
            self._kept.write(room, origin, charging.request, charging.question, kept, charging.expires)
        return answer

    def _computed(self, asked: Asked) -> str:
        """What the same share is computed with: the function's engine, and how parts are drawn."""
        engine = self._functions[asked.function].engine
        return engine if asked.question.part is None else f"{engine}, batches {batches.VERSION}"

    def _answer(self, asked: Asked, charging: Charging, line: Line, seeds: Sequence[bytes]) -> Answer:
        """Share, noise and mask."""
        tables = _noised(asked, self._share(asked, seeds), mechanisms.root(line.seed, seeds))
        columns = [column for table in tables for column in table.columns]
        shape = ",".join(f"{rows}x{width}" for rows, width in (column.shape for column in columns))
        key = zero_sum.key(
            seeds,
            asked.document.digest,
            charging.datasets,
            charging.question,
            charging.computed.encode(),
            shape.encode(),
        )
        flat = np.concatenate([column.ravel() for column in columns])
        place = place_of(asked.document, self._helper)
        left = zero_sum.masked(flat, key, place, len(asked.document.helpers))
        return Answer(line.receipt, [*_cut(left, tables)])

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
        records = sum(each.size(question.tag) for each in datasets)
        if question.part is not None:
            records = int(records * question.part.share)
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

    @staticmethod
    def _share(asked: Asked, seeds: Sequence[bytes]) -> list[Table]:
        part, tag, k = asked.question.part, asked.question.tag, asked.document.k
        records = [dataset.records(tag) for dataset in asked.datasets]
        if part is None:
            return asked.question.share(records, k)
        assert tag is not None, "only models have parts"
        work = parts.of_part(part, seeds, tag, [dataset.size(tag) for dataset in asked.datasets]).at_least(k)
        return asked.question.share([work.only_counted(work.gather(records))], k)


def place_of(document: Document, helper: str) -> int:
    """Which of the document's helpers this is."""
    return [each.name for each in document.helpers].index(helper)


def _check_size(document: Document, records: int) -> None:
    if records < document.k:
        raise TooFewRecords(f"fewer than k = {document.k} records: nothing is released over so few")
    if records > document.most_records:
        raise TooManyRecords(f"a release is over at most {document.most_records} records: ask over fewer")


def _most_bytes(question: Question, rows: int) -> int:
    """What an answer of so many rows a table can take, beside its receipt."""
    return sum(
        rows * (sum(8 * column.width for column in plan.columns) + len(plan.by) * (MOST_KEY_TEXT + 2) + 9)
        for plan in question.plans
    )


def _check_answer(question: Question, rows: int) -> None:
    """Before charging: an answer that nobody could read is not worth its budget."""
    size = _most_bytes(question, rows)
    if size > MOST_ANSWER - MOST_REQUEST:
        raise AnswerTooLarge(
            f"the answer could take {size >> 20} MiB: ask for fewer values or groupings at once"
        )


def _check_range(document: Document, mechanism: Mechanism, noise: float, column: Column) -> None:
    """Before computing: no sum, with the noise of all helpers, may leave the field."""
    tail = mechanisms.tail(mechanism.kind, noise, column.sensitivity, len(document.helpers))
    if document.most_records * column.largest + tail > field.HALF:
        raise FieldOverflow(f"with noise {noise:g}, {column.name} could leave the field: ask for less noise")


def _cut(flat: FieldArray, tables: Sequence[AnswerTable]) -> Iterator[AnswerTable]:
    """Numbers one after the other, as the tables that they belong to."""
    start = 0
    for table in tables:
        columns = []
        for column in table.columns:
            columns.append(flat[start : start + column.size].reshape(column.shape))
            start += column.size
        yield AnswerTable(table.rows, columns)


def _noised(asked: Asked, tables: Sequence[Table], seed: bytes) -> list[AnswerTable]:
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

    Run by helpers, and by who audits them with a helper's folder. `seed`: the root of the release's noise.
    """
    return hashlib.sha256(
        b"maskedlark v1 noise" + seed + table.to_bytes(4, "big") + column.to_bytes(4, "big")
    ).digest()
