"""The ad server's datasets: which reports each holds, where its chunks begin, and how helpers answered them.

A dataset is a selection that has ended, so its chunks never change and can be read again from their starts.

Reports received before the floor are being deleted, so no new dataset may begin below it. Moving the floor
and adding a dataset exclude each other by the name "datasets", so each sees what the other has done.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from maskedlark.adserver.dates import format_utc
from maskedlark.adserver.errors import BelowFloor, DatasetChanged, NameTaken, Overlapping
from maskedlark.adserver.report_store import ChunkStart, Selection
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotValid
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.wire.datasets import MAX_DATASET_NAME, CheckAnswer, ChunkAnswer, unpack

SCHEMA_VERSION = 4
MAX_HELPER_NAME = 64
ATTEMPT_BYTES = 16
_TABLES = sa.MetaData()
_DATASETS = sa.Table(
    "datasets",
    _TABLES,
    sa.Column("name", sa.String(MAX_DATASET_NAME), primary_key=True),
    sa.Column("attempt", sa.LargeBinary, nullable=False),
    sa.Column("purpose", sa.String(16), nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("end", sa.BigInteger, nullable=False),
    sa.Column("reports", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=True),
    sa.Column("records", sa.BigInteger, nullable=True),
)
_CHUNKS = sa.Table(
    "dataset_chunks",
    _TABLES,
    sa.Column("dataset", sa.ForeignKey(_DATASETS.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("id", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
)
_ANSWERS = sa.Table(
    "dataset_answers",
    _TABLES,
    sa.Column("dataset", sa.ForeignKey(_DATASETS.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("helper", sa.String(MAX_HELPER_NAME), primary_key=True),
    sa.Column("parts", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Text, nullable=False),
    sa.Column("refused", sa.Text, nullable=False),
    # Where reports are checked: the helper's message until all have frozen, and then its verdict.
    sa.Column("checks", sa.LargeBinary, nullable=True),
    sa.Column("valid", sa.Text, nullable=True),
    sa.Column("invalid", sa.Integer, nullable=True),
)

_FLOOR = sa.Table(
    "reports_floor",
    _TABLES,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("moment", sa.BigInteger, nullable=False),
    sa.Column("looked", sa.BigInteger, nullable=False),  # Not used any more.
)


class StoredChecks(NamedTuple):
    """A helper's check message of a chunk, which parts it accepted, and whether it gave its verdict."""

    message: bytes | None
    """None once the dataset is frozen or aborted."""
    accepted: NDArray[np.bool_]
    is_checked: bool


class DatasetState(StrEnum):
    """Where a dataset stands at the ad server."""

    SELECTED = "selected"
    """Fixed, and perhaps sent in part."""
    FROZEN = "frozen"
    """Frozen at every helper: it can be queried."""
    ABORTED = "aborted"
    """Aborted everywhere: its reports are free for another."""
    LOST = "lost"
    """Given up: some helpers froze it and some did not, so its reports stay taken and cannot be queried."""
    EXPIRED = "expired"
    """A report of it is past its lifetime: helpers have dropped it."""


@dataclass(frozen=True)
class Dataset:
    """A dataset as the ad server knows it."""

    name: str
    selection: Selection
    reports: int
    state: DatasetState
    digest: bytes | None = None
    """Names a frozen dataset at helpers."""
    records: int | None = None
    """How many all helpers accepted."""
    attempt: bytes = field(default=b"", compare=False)
    """Random: tells this dataset from an aborted one of the same name."""


def make(database: Database) -> None:
    """Create missing tables. Run by a party at its start."""
    prepare(database, "datasets", SCHEMA_VERSION, _TABLES)
    with database.write() as connection:
        database.insert_new(connection, _FLOOR, [(0, 0, 0)])


def floor(connection: sa.Connection) -> int:
    """Where deleting ends, in seconds since 1970."""
    return int(connection.execute(sa.select(_FLOOR.c.moment)).scalar_one())


def put_floor(connection: sa.Connection, moment: int) -> None:
    """Set the floor. It may go down: a clock that was ahead must not hold up datasets."""
    connection.execute(sa.update(_FLOOR).values(moment=moment))


def unfinished(connection: sa.Connection) -> list[Selection]:
    """Selections not yet frozen everywhere: their reports are still read."""
    query = sa.select(_DATASETS).where(_DATASETS.c.state == DatasetState.SELECTED.value)
    return [_dataset(row).selection for row in connection.execute(query)]


class Datasets:
    """The table of datasets in an open database. Any thread may use it."""

    def __init__(self, database: Database, rng: Randomness | None = None) -> None:
        make(database)
        self._database, self._rng = database, rng or SystemRandomness()

    def add(self, name: str, selection: Selection, chunks: Sequence[ChunkStart]) -> None:
        """Store a new dataset. Refuses a name that is taken and an overlapping selection."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            _check_free(connection, name, selection)
            # Reports below may have been deleted since its chunks were counted.
            if (lowest := floor(connection)) > selection.start:
                raise BelowFloor(f"reports from before second {lowest} are being deleted: begin later")
            # It replaces an aborted dataset of the same name.
            for column in (_ANSWERS.c.dataset, _CHUNKS.c.dataset, _DATASETS.c.name):
                connection.execute(sa.delete(column.table).where(column == name))
            attempt, reports = self._rng.bytes(ATTEMPT_BYTES), sum(chunk.size for chunk in chunks)
            chosen = selection.purpose.value, selection.parameters, selection.start, selection.end
            row = (name, attempt, *chosen, reports, DatasetState.SELECTED.value, None, None)
            self._database.insert_new(connection, _DATASETS, [row])
            rows = [(name, number, *chunk) for number, chunk in enumerate(chunks)]
            self._database.insert_new(connection, _CHUNKS, rows)

    def floor(self) -> int:
        """Reports received before this are being deleted: no dataset may begin below it."""
        with self._database.read() as connection:
            return floor(connection)

    def get(self, name: str) -> Dataset | None:
        """The dataset of this name, or None."""
        rows = self._database.rows(sa.select(_DATASETS).where(_DATASETS.c.name == name))
        return _dataset(rows[0]) if rows else None

    def all(self) -> list[Dataset]:
        """Every dataset, the earliest first."""
        query = sa.select(_DATASETS).order_by(_DATASETS.c.start, _DATASETS.c.name)
        return [_dataset(row) for row in self._database.rows(query)]

    def chunks(self, name: str) -> list[ChunkStart]:
        """Where the chunks of a dataset begin, by number."""
        query = sa.select(_CHUNKS.c.received, _CHUNKS.c.id, _CHUNKS.c.size).where(_CHUNKS.c.dataset == name)
        return [ChunkStart(*row) for row in self._database.rows(query.order_by(_CHUNKS.c.number))]

    def keep(
        self, name: str, number: int, helper: str, answer: ChunkAnswer, checks: bytes | None = None
    ) -> None:
        """Durably store a helper's answer to a chunk, and its check message.

        One that accepts other parts replaces it. The same again changes nothing: another client may have
        relayed the message already, and stored the verdict.
        """
        key, said = (name, number, helper), (answer.parts, answer.accepted)
        row = (*key, *said, json.dumps(answer.refused), checks, None, None)
        other = sa.tuple_(_ANSWERS.c.parts, _ANSWERS.c.accepted) != said
        with self._database.write() as connection:
            connection.execute(sa.delete(_ANSWERS).where(sa.tuple_(*_ANSWERS.primary_key) == key, other))
            self._database.insert_new(connection, _ANSWERS, [row])

    def forget(self, name: str, helper: str, numbers: Collection[int]) -> None:
        """Remove a helper's answers to these chunks, with its verdicts: it has them no more."""
        these = _ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper, _ANSWERS.c.number.in_(numbers)
        self._database.change(sa.delete(_ANSWERS).where(*these))

    def forget_verdicts(self, name: str, helper: str) -> None:
        """Remove a helper's verdicts, so that all chunks are checked by it again."""
        these = _ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper
        self._database.change(sa.update(_ANSWERS).where(*these).values(valid=None, invalid=None))

    def answered(self, name: str, helper: str) -> set[int]:
        """The chunks whose answer by this helper is stored."""
        query = sa.select(_ANSWERS.c.number).where(_ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper)
        return {number for (number,) in self._database.rows(query)}

    def answers(self, name: str, checked: bool = False) -> Iterator[tuple[int, str, ChunkAnswer]]:
        """All helpers' answers, (number, helper, answer), chunk by chunk: once checked, of what is valid.

        With `checked`, none without the helper's verdict.
        """
        query = sa.select(_ANSWERS).where(_ANSWERS.c.dataset == name).order_by(_ANSWERS.c.number)
        if checked:
            query = query.where(_ANSWERS.c.valid.is_not(None))
        with self._database.read() as connection:
            for row in connection.execute(query):
                refused, accepted = json.loads(row.refused), row.accepted
                if row.valid is not None:
                    accepted = row.valid
                    refused |= {NotValid.__name__: row.invalid} if row.invalid else {}
                yield row.number, row.helper, ChunkAnswer(parts=row.parts, accepted=accepted, refused=refused)

    def checks(self, name: str, number: int) -> dict[str, StoredChecks]:
        """What is known of the check of a chunk, by helper."""
        query = sa.select(_ANSWERS).where(_ANSWERS.c.dataset == name, _ANSWERS.c.number == number)
        return {
            row.helper: StoredChecks(row.checks, unpack(row.accepted, row.parts), row.valid is not None)
            for row in self._database.rows(query)
        }

    def check(self, name: str, number: int, helper: str, answer: CheckAnswer) -> None:
        """Durably store a helper's verdict on a chunk."""
        this = sa.tuple_(*_ANSWERS.primary_key) == (name, number, helper)
        verdict = {"valid": answer.valid, "invalid": answer.invalid}
        self._database.change(sa.update(_ANSWERS).where(this).values(**verdict))

    def invalid(self, name: str, helper: str) -> int | None:
        """How many reports this helper found not valid; None where nothing is checked."""
        this = _ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper
        invalid = self._database.rows(sa.select(sa.func.sum(_ANSWERS.c.invalid)).where(*this))[0][0]
        return None if invalid is None else int(invalid)

    def unchecked(self, name: str) -> list[int]:
        """The chunks on which some helper's verdict is not stored."""
        this = _ANSWERS.c.dataset == name, _ANSWERS.c.valid.is_(None)
        query = sa.select(_ANSWERS.c.number).where(*this).distinct().order_by(_ANSWERS.c.number)
        return [number for (number,) in self._database.rows(query)]

    def refusals(self, name: str) -> dict[str, dict[str, int]]:
        """How many reports each helper refused, by error name."""
        refusals: dict[str, Counter[str]] = {}
        for _, helper, answer in self.answers(name):
            refusals.setdefault(helper, Counter()).update(answer.refused)
        return {helper: dict(counts) for helper, counts in sorted(refusals.items())}

    def freeze(self, name: str, digest: bytes, records: int) -> None:
        """Every helper has frozen it, under the same digest."""
        self.mark(name, DatasetState.FROZEN, digest=digest, records=records)

    def mark(self, name: str, state: DatasetState, **values: object) -> None:
        """Set it aborted, lost, frozen or expired. A no-op if it is already in that state."""
        before = DatasetState.FROZEN if state is DatasetState.EXPIRED else DatasetState.SELECTED
        wanted = {"state": state.value, **values}
        change = sa.update(_DATASETS).where(_DATASETS.c.name == name, _DATASETS.c.state == before.value)
        with self._database.write() as connection:
            changed = connection.execute(change.values(**wanted)).rowcount
            if changed:
                # Check messages are the longest of all that is stored, and of no more use.
                connection.execute(sa.update(_ANSWERS).where(_ANSWERS.c.dataset == name).values(checks=None))
        if not changed:
            # Its state has changed since the caller looked.
            now = self.get(name)
            if now is None or any(getattr(now, column) != value for column, value in wanted.items()):
                stands = "gone" if now is None else now.state
                raise DatasetChanged(
                    f"{name} is {stands}, not {before}: another client was faster, look again"
                )


def name_taken(other: Dataset) -> NameTaken:
    """The error for a name that another dataset has."""
    return NameTaken(f"there is a dataset {other.name} already, and it is {other.state}: choose another name")


def _check_free(connection: sa.Connection, name: str, selection: Selection) -> None:
    """Refuse a taken name or an overlapping time range: no report may be in two datasets."""
    named = _DATASETS.c
    same = (named.purpose == selection.purpose.value) & (named.parameters == selection.parameters)
    overlapping = same & (named.start < selection.end) & (named.end > selection.start)
    query = sa.select(_DATASETS).where(
        named.state != DatasetState.ABORTED.value, (named.name == name) | overlapping
    )
    # The name first: it is the simpler mistake.
    for row in connection.execute(query.order_by(named.name != name, named.start).limit(1)):
        other = _dataset(row)
        if other.name == name:
            raise name_taken(other)
        start, end = format_utc(other.selection.start), format_utc(other.selection.end)
        raise Overlapping(
            f"{other.name} holds what was received from {start} until {end} UTC: choose a time outside it"
        )


def _dataset(row: sa.Row[tuple[object, ...]]) -> Dataset:
    selection = Selection(Purpose(row.purpose), row.parameters, row.start, row.end)
    state = DatasetState(row.state)
    return Dataset(row.name, selection, row.reports, state, row.digest, row.records, row.attempt)
