"""The ad server's datasets: which reports each holds, where its chunks begin, and what helpers said of them.

A dataset is a selection that is over, so its chunks never change and are read again from where they begin.

Beside them is the floor: reports that were received before it are being deleted, so no new dataset may begin
below it. Who moves the floor, and who adds a dataset, holds the name "datasets" alone: each sees what the
other has done.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from maskedlark.adserver.dates import shown
from maskedlark.adserver.errors import BelowFloor, NameTaken, NotFrozen, Overlapping
from maskedlark.adserver.report_store import ChunkStart, Selection
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.wire.datasets import MAX_DATASET_NAME, ChunkAnswer

SCHEMA_VERSION = 2
MAX_HELPER_NAME = 64
OPENING_BYTES = 16
_TABLES = sa.MetaData()
_DATASETS = sa.Table(
    "datasets",
    _TABLES,
    sa.Column("name", sa.String(MAX_DATASET_NAME), primary_key=True),
    sa.Column("opening", sa.LargeBinary, nullable=False),
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
)

_FLOOR = sa.Table(
    "reports_floor",
    _TABLES,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("moment", sa.BigInteger, nullable=False),
    sa.Column("looked", sa.BigInteger, nullable=False),
)


class Floor(NamedTuple):
    """Seconds since 1970."""

    moment: int
    looked: int
    """The greatest moment at which something was deleted."""


class DatasetState(StrEnum):
    """Where a dataset stands at the ad server."""

    FROZEN = "frozen"
    """Fixed, and perhaps sent in part."""
    SEALED = "sealed"
    """Sealed at every helper: questions can be asked."""
    ABORTED = "aborted"
    """Taken back everywhere: its reports are free for another."""
    LOST = "lost"
    """Given up: some helper has sealed it and some has not, so its reports stay taken and answer nothing."""
    EXPIRED = "expired"
    """A report of it is past its lifetime: helpers have let go of it."""


@dataclass(frozen=True)
class Dataset:
    """A dataset as the ad server knows it."""

    name: str
    selection: Selection
    reports: int
    state: DatasetState
    digest: bytes | None = None
    """Of a sealed one: by which helpers know it."""
    records: int | None = None
    """What all helpers accepted."""
    opening: bytes = field(default=b"", compare=False)
    """Random, of this freezing alone: by which helpers tell it from an aborted one of its name."""


def make(database: Database) -> None:
    """Make the tables where they are missing. Run by a party at its start."""
    prepare(database, "datasets", SCHEMA_VERSION, _TABLES)
    with database.write() as connection:
        database.insert_new(connection, _FLOOR, [(0, 0, 0)])


def floor(connection: sa.Connection) -> Floor:
    """Where the floor is now."""
    return Floor(*connection.execute(sa.select(_FLOOR.c.moment, _FLOOR.c.looked)).one())


def put_floor(connection: sa.Connection, moment: int, looked: int) -> None:
    """Where the floor is from now on. It may go down: a clock that was ahead must not hold up datasets."""
    connection.execute(sa.update(_FLOOR).values(moment=moment, looked=looked))


def unfinished(connection: sa.Connection) -> list[Selection]:
    """What is selected and not yet sealed everywhere: its reports are still read."""
    query = sa.select(_DATASETS).where(_DATASETS.c.state == DatasetState.FROZEN.value)
    return [_dataset(row).selection for row in connection.execute(query)]


class Datasets:
    """The table of datasets in an open database. Any thread may use it."""

    def __init__(self, database: Database, rng: Randomness | None = None) -> None:
        make(database)
        self._database, self._rng = database, rng or SystemRandomness()

    def add(self, name: str, selection: Selection, chunks: Sequence[ChunkStart]) -> None:
        """Keep a new dataset, if none is in its way: of its name, or of the same time."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            _check_free(connection, name, selection)
            # Since its chunks were counted, reports below may have gone.
            if (lowest := floor(connection).moment) > selection.start:
                raise BelowFloor(f"reports from before second {lowest} are being deleted: begin later")
            # An aborted one of its name lets go of it.
            for column in (_ANSWERS.c.dataset, _CHUNKS.c.dataset, _DATASETS.c.name):
                connection.execute(sa.delete(column.table).where(column == name))
            opening, reports = self._rng.bytes(OPENING_BYTES), sum(chunk.size for chunk in chunks)
            chosen = selection.purpose.value, selection.parameters, selection.start, selection.end
            row = (name, opening, *chosen, reports, DatasetState.FROZEN.value, None, None)
            self._database.insert_new(connection, _DATASETS, [row])
            rows = [(name, number, *chunk) for number, chunk in enumerate(chunks)]
            self._database.insert_new(connection, _CHUNKS, rows)

    def floor(self) -> int:
        """What was received before is being deleted: no dataset begins there."""
        with self._database.read() as connection:
            return floor(connection).moment

    def get(self, name: str) -> Dataset | None:
        """The dataset of this name; none if there is none."""
        rows = self._database.rows(sa.select(_DATASETS).where(_DATASETS.c.name == name))
        return _dataset(rows[0]) if rows else None

    def all(self) -> list[Dataset]:
        """Every dataset, the earliest first."""
        query = sa.select(_DATASETS).order_by(_DATASETS.c.start, _DATASETS.c.name)
        return [_dataset(row) for row in self._database.rows(query)]

    def chunks(self, name: str) -> list[ChunkStart]:
        """Where the chunks of a dataset begin, by their number."""
        query = sa.select(_CHUNKS.c.received, _CHUNKS.c.id, _CHUNKS.c.size).where(_CHUNKS.c.dataset == name)
        return [ChunkStart(*row) for row in self._database.rows(query.order_by(_CHUNKS.c.number))]

    def keep(self, name: str, number: int, helper: str, answer: ChunkAnswer) -> None:
        """Keep what a helper said of a chunk, durably; a later answer takes the place of an earlier one."""
        key = (name, number, helper)
        row = (*key, answer.parts, answer.accepted, json.dumps(answer.refused))
        with self._database.write() as connection:
            connection.execute(sa.delete(_ANSWERS).where(sa.tuple_(*_ANSWERS.primary_key) == key))
            self._database.insert_new(connection, _ANSWERS, [row])

    def answered(self, name: str, helper: str) -> set[int]:
        """The chunks of which a helper's answer is kept."""
        query = sa.select(_ANSWERS.c.number).where(_ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper)
        return {number for (number,) in self._database.rows(query)}

    def answers(self, name: str) -> Iterator[tuple[int, str, ChunkAnswer]]:
        """What helpers said of every chunk: number, helper, answer, chunk by chunk."""
        query = sa.select(_ANSWERS).where(_ANSWERS.c.dataset == name).order_by(_ANSWERS.c.number)
        with self._database.read() as connection:
            for row in connection.execute(query):
                answer = ChunkAnswer(parts=row.parts, accepted=row.accepted, refused=json.loads(row.refused))
                yield row.number, row.helper, answer

    def refusals(self, name: str) -> dict[str, dict[str, int]]:
        """How many reports each helper refused, by the error's name."""
        refusals: dict[str, Counter[str]] = {}
        for _, helper, answer in self.answers(name):
            refusals.setdefault(helper, Counter()).update(answer.refused)
        return {helper: dict(counts) for helper, counts in sorted(refusals.items())}

    def seal(self, name: str, digest: bytes, records: int) -> None:
        """Every helper has sealed it, under the same digest."""
        self.mark(name, DatasetState.SEALED, digest=digest, records=records)

    def mark(self, name: str, state: DatasetState, **values: object) -> None:
        """It was taken back, given up or sealed; or has expired since. What is so already may be so."""
        before = DatasetState.SEALED if state is DatasetState.EXPIRED else DatasetState.FROZEN
        wanted = {"state": state.value, **values}
        change = sa.update(_DATASETS).where(_DATASETS.c.name == name, _DATASETS.c.state == before.value)
        if not self._database.change(change.values(**wanted)):
            # It does not stand where the caller saw it.
            now = self.get(name)
            if now is None or any(getattr(now, column) != value for column, value in wanted.items()):
                stands = "gone" if now is None else now.state
                raise NotFrozen(f"{name} is {stands}, not {before}: another client was faster, look again")


def name_taken(other: Dataset) -> NameTaken:
    """The error of who wants the name of another dataset."""
    return NameTaken(f"there is a dataset {other.name} already, and it is {other.state}: choose another name")


def _check_free(connection: sa.Connection, name: str, selection: Selection) -> None:
    """Ids of two datasets must differ, and a range of time holds each report once."""
    named = _DATASETS.c
    same = (named.purpose == selection.purpose.value) & (named.parameters == selection.parameters)
    overlapping = same & (named.start < selection.end) & (named.end > selection.start)
    query = sa.select(_DATASETS).where(
        named.state != DatasetState.ABORTED.value, (named.name == name) | overlapping
    )
    # The name first: it is the plainer mistake.
    for row in connection.execute(query.order_by(named.name != name, named.start).limit(1)):
        other = _dataset(row)
        if other.name == name:
            raise name_taken(other)
        start, end = shown(other.selection.start), shown(other.selection.end)
        raise Overlapping(
            f"{other.name} holds what was received from {start} until {end} UTC: choose a time outside it"
        )


def _dataset(row: sa.Row[tuple[object, ...]]) -> Dataset:
    selection = Selection(Purpose(row.purpose), row.parameters, row.start, row.end)
    state = DatasetState(row.state)
    return Dataset(row.name, selection, row.reports, state, row.digest, row.records, row.opening)
