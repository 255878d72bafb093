"""The ad server's datasets: which reports each holds, where its chunks begin, and what helpers said of them.

A dataset is a selection that is over, so its chunks never change and are read again from their marks.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    delete,
    select,
    update,
)

from maskedlark.adserver import floor
from maskedlark.adserver.report_store import Mark, Selection
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import BelowFloor, NotFrozen
from maskedlark.storage.schema import prepare
from maskedlark.wire.datasets import MOST_DATASET_NAME, ChunkAnswer

SCHEMA_VERSION = 2
MOST_HELPER_NAME = 64
OPENING_BYTES = 16
_TABLES = MetaData()
_DATASETS = Table(
    "datasets",
    _TABLES,
    Column("name", String(MOST_DATASET_NAME), primary_key=True),
    Column("opening", LargeBinary, nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("reports", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("digest", LargeBinary, nullable=True),
    Column("records", BigInteger, nullable=True),
)
_CHUNKS = Table(
    "dataset_chunks",
    _TABLES,
    Column("dataset", ForeignKey(_DATASETS.c.name), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("received", BigInteger, nullable=False),
    Column("id", LargeBinary, nullable=False),
    Column("size", Integer, nullable=False),
)
_ANSWERS = Table(
    "dataset_answers",
    _TABLES,
    Column("dataset", ForeignKey(_DATASETS.c.name), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("helper", String(MOST_HELPER_NAME), primary_key=True),
    Column("parts", Integer, nullable=False),
    Column("accepted", Text, nullable=False),
    Column("refused", Text, nullable=False),
)


class Standing(StrEnum):
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
    state: Standing
    digest: bytes | None = None
    """Of a sealed one: by which helpers know it."""
    records: int | None = None
    """What all helpers accepted."""
    opening: bytes = field(default=b"", compare=False)
    """Random, of this freezing alone: by which helpers tell it from an aborted one of its name."""


def make(database: Database) -> None:
    """Make the tables where they are missing. Run by a party at its start."""
    floor.make(database)
    prepare(database, "datasets", SCHEMA_VERSION, _TABLES)


def frozen(connection: Connection) -> list[Selection]:
    """What is fixed and not yet sealed everywhere: its reports are still read."""
    query = select(_DATASETS).where(_DATASETS.c.state == Standing.FROZEN.value)
    return [_dataset(row).selection for row in connection.execute(query)]


class Datasets:
    """The table of datasets in an open database. Any thread may use it."""

    def __init__(self, database: Database, rng: Randomness | None = None) -> None:
        make(database)
        self._database, self._rng = database, rng or SystemRandomness()

    def add(self, name: str, selection: Selection, marks: Sequence[Mark]) -> Dataset | None:
        """Keep a new dataset. Returns one that is in its way: of its name, or of the same time."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            if (before := _in_the_way(connection, name, selection)) is not None:
                return before
            # Since its marks were read, reports below may have gone.
            if (lowest := floor.read(connection).moment) > selection.start:
                raise BelowFloor(f"reports from before second {lowest} are being deleted: begin later")
            _forget(connection, name)
            row = _DATASETS.insert().values(
                name=name,
                opening=self._rng.bytes(OPENING_BYTES),
                purpose=selection.purpose.value,
                parameters=selection.parameters,
                start=selection.start,
                end=selection.end,
                reports=sum(mark.size for mark in marks),
                state=Standing.FROZEN.value,
            )
            connection.execute(row)
            self._database.insert_new(connection, _CHUNKS, [(name, i, *mark) for i, mark in enumerate(marks)])
        return None

    def floor(self) -> int:
        """What was received before is being deleted: no dataset begins there."""
        with self._database.read() as connection:
            return floor.read(connection).moment

    def get(self, name: str) -> Dataset | None:
        """The dataset of this name; none if there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(_DATASETS).where(_DATASETS.c.name == name)).one_or_none()
        return None if row is None else _dataset(row)

    def all(self) -> list[Dataset]:
        """Every dataset, the earliest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_DATASETS).order_by(_DATASETS.c.start, _DATASETS.c.name))
            return [_dataset(row) for row in rows]

    def marks(self, name: str) -> list[Mark]:
        """Where the chunks of a dataset begin, by their number."""
        query = select(_CHUNKS.c.received, _CHUNKS.c.id, _CHUNKS.c.size).where(_CHUNKS.c.dataset == name)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_CHUNKS.c.number))
            return [Mark(row.received, bytes(row.id), row.size) for row in rows]

    def keep(self, name: str, number: int, helper: str, answer: ChunkAnswer) -> None:
        """Keep what a helper said of a chunk, durably; a later answer takes the place of an earlier one."""
        answers, refused = _ANSWERS.c, json.dumps(answer.refused)
        here = (answers.dataset == name) & (answers.number == number) & (answers.helper == helper)
        with self._database.write() as connection:
            connection.execute(delete(_ANSWERS).where(here))
            row = (name, number, helper, answer.parts, answer.accepted, refused)
            self._database.insert_new(connection, _ANSWERS, [row])

    def answered(self, name: str, helper: str) -> set[int]:
        """The chunks of which a helper's answer is kept."""
        query = select(_ANSWERS.c.number).where(_ANSWERS.c.dataset == name, _ANSWERS.c.helper == helper)
        with self._database.read() as connection:
            return set(connection.scalars(query))

    def answers(self, name: str) -> Iterator[tuple[int, str, ChunkAnswer]]:
        """What helpers said of every chunk: number, helper, answer, chunk by chunk."""
        query = select(_ANSWERS).where(_ANSWERS.c.dataset == name).order_by(_ANSWERS.c.number)
        with self._database.read() as connection:
            for row in connection.execute(query):
                yield row.number, row.helper, _answer(row)

    def refusals(self, name: str) -> dict[str, dict[str, int]]:
        """How many reports each helper refused, by the error's name."""
        found: dict[str, Counter[str]] = {}
        query = select(_ANSWERS.c.helper, _ANSWERS.c.refused).where(_ANSWERS.c.dataset == name)
        with self._database.read() as connection:
            for row in connection.execute(query):
                found.setdefault(row.helper, Counter()).update(_refused(row.refused))
        return {helper: dict(counts) for helper, counts in sorted(found.items())}

    def seal(self, name: str, digest: bytes, records: int) -> None:
        """Every helper has sealed it, and found the same."""
        self._set(name, Standing.FROZEN, Standing.SEALED, {"digest": digest, "records": records})

    def abort(self, name: str) -> None:
        """Every helper has let go of it."""
        self._set(name, Standing.FROZEN, Standing.ABORTED)

    def lose(self, name: str) -> None:
        """It is given up."""
        self._set(name, Standing.FROZEN, Standing.LOST)

    def expire(self, name: str) -> None:
        """Every helper has let go of a sealed one, because of its age."""
        self._set(name, Standing.SEALED, Standing.EXPIRED)

    def _set(
        self, name: str, before: Standing, state: Standing, values: Mapping[str, object] | None = None
    ) -> None:
        """Change where it stands, if it stands where the caller saw it. What is so already may be so."""
        wanted = {"state": state.value, **(values or {})}
        named = _DATASETS.c.name == name
        with self._database.write() as connection:
            change = update(_DATASETS).where(named, _DATASETS.c.state == before.value).values(**wanted)
            if connection.execute(change).rowcount:
                return
            row = connection.execute(select(_DATASETS).where(named)).mappings().one_or_none()
        if row is None or any(row[column] != value for column, value in wanted.items()):
            now = "gone" if row is None else row["state"]
            raise NotFrozen(f"{name} is {now}, not {before}: another client was faster, look again")


def _in_the_way(connection: Connection, name: str, selection: Selection) -> Dataset | None:
    """Ids of two datasets must differ, and a range of time holds each report once."""
    named = _DATASETS.c
    same = (named.purpose == selection.purpose.value) & (named.parameters == selection.parameters)
    overlapping = same & (named.start < selection.end) & (named.end > selection.start)
    query = select(_DATASETS).where(named.state != Standing.ABORTED.value, (named.name == name) | overlapping)
    # The name first: it is the plainer mistake.
    found = [_dataset(row) for row in connection.execute(query.order_by(named.start))]
    return min(found, key=lambda each: each.name != name, default=None)


def _forget(connection: Connection, name: str) -> None:
    """Let go of an aborted dataset, so that its name is free."""
    for table in (_ANSWERS, _CHUNKS):
        connection.execute(delete(table).where(table.c.dataset == name))
    connection.execute(delete(_DATASETS).where(_DATASETS.c.name == name))


def _dataset(row: Row[tuple[object, ...]]) -> Dataset:
    selection = Selection(Purpose(row.purpose), bytes(row.parameters), row.start, row.end)
    digest = None if row.digest is None else bytes(row.digest)
    state, opening = Standing(row.state), bytes(row.opening)
    return Dataset(row.name, selection, row.reports, state, digest, row.records, opening)


def _answer(row: Row[tuple[object, ...]]) -> ChunkAnswer:
    return ChunkAnswer(parts=row.parts, accepted=row.accepted, refused=_refused(row.refused))


def _refused(text: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(text)
    return found
