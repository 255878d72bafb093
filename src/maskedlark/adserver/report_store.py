"""The ad server's reports: each stored once by id, as the bytes received, and read in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import sqlalchemy as sa

from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.storage import schema
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import UnusedDatabase
from maskedlark.wire.report import MAX_ORIGIN, Head, ReportLayout

SCHEMA_VERSION = 1
PAGE = 256
"""Reports held in memory at a time when many are read."""
LOOKUP = 500
"""Ids in one query: below every database's limit on parameters."""

_TABLES = sa.MetaData()
_REPORTS = sa.Table(
    "reports",
    _TABLES,
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("origin", sa.String(MAX_ORIGIN), nullable=False),
    sa.Column("purpose", sa.String(16), nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("hour", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
# Ids are random, so the order within a second is too: it does not tell which reports were sent together.
sa.Index("reports_by_selection", *[_REPORTS.c[name] for name in ("purpose", "parameters", "received", "id")])
_ORDER = _REPORTS.c.received, _REPORTS.c.id
_OVER = sa.Table(
    "reports_over",
    _TABLES,
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("moment", sa.BigInteger, nullable=False),
)
_MOMENT = str(sa.select(_OVER.c.moment))


class Outcome(StrEnum):
    """What became of an uploaded report."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    """The same bytes are already stored; they count once."""
    CONFLICT = "conflict"
    """Other bytes are already stored under this id, and stay."""


class Arrival(NamedTuple):
    """A report whose form was checked: its layout, what differs in it, and all its bytes."""

    layout: ReportLayout
    head: Head
    data: bytes


class StoredReport(NamedTuple):
    """A row of the table of reports."""

    id: bytes
    origin: str
    purpose: str
    parameters: bytes
    hour: int
    received: int
    """Seconds since 1970, by the ad server's clock."""
    data: bytes


class ChunkStart(NamedTuple):
    """Where a chunk of a selection begins: after this time and id."""

    received: int
    id: bytes
    size: int
    """Reports in the chunk."""


Position = StoredReport | ChunkStart
_NEVER = 1 << 62


@dataclass(frozen=True)
class Selection:
    """Reports of one purpose and one parameter document, received in [start, end)."""

    purpose: Purpose
    parameters: bytes
    start: int
    end: int

    @property
    def kind(self) -> tuple[Purpose, bytes]:
        """What its reports share apart from time."""
        return self.purpose, self.parameters

    def where(self, after: Position | None = None) -> sa.ColumnElement[bool]:
        """The SQL condition, optionally only for what follows a position; the index answers both."""
        named = _REPORTS.c
        begins = named.received >= self.start
        if after is not None:
            begins = sa.tuple_(named.received, named.id) > (after.received, after.id)
        same = sa.and_(named.purpose == self.purpose.value, named.parameters == self.parameters)
        return sa.and_(same, begins, named.received < self.end)


def check_used(database: Database) -> None:
    """Refuse a database that no ad server has opened. Run by measuring clients before they create tables."""
    with database.read() as connection:
        if not sa.inspect(connection).has_table(_REPORTS.name):
            raise UnusedDatabase("no ad server has used this database: check its path in the configuration")


def make(database: Database) -> None:
    """Create missing tables. Run by a party at its start."""
    schema.prepare(database, "reports", SCHEMA_VERSION, _TABLES)
    with database.write() as connection:
        database.insert_new(connection, _OVER, [(0, 0)])


def selections(connection: sa.Connection) -> Iterator[Selection]:
    """All reports, by purpose and document. One index step each, not a scan."""
    named = _REPORTS.c.purpose, _REPORTS.c.parameters
    query = sa.select(*named).order_by(*named).limit(1)
    row = connection.execute(query).one_or_none()
    while row is not None:
        yield Selection(Purpose(row.purpose), row.parameters, 0, _NEVER)
        row = connection.execute(query.where(sa.tuple_(*named) > tuple(row))).one_or_none()


def gaps(whole: Selection, others: Iterable[Selection]) -> Iterator[Selection]:
    """What a selection has outside the times of the others of its kind."""
    start = whole.start
    for each in sorted((each for each in others if each.kind == whole.kind), key=lambda each: each.start):
        if start < each.start:
            yield replace(whole, start=start, end=min(each.start, whole.end))
        start = max(start, each.end)
    yield replace(whole, start=start)


def delete_some(connection: sa.Connection, selection: Selection, limit: int) -> int:
    """Delete the first reports of a selection; returns how many."""
    first = sa.select(_REPORTS.c.id).where(selection.where()).order_by(*_ORDER).limit(limit)
    return connection.execute(sa.delete(_REPORTS).where(_REPORTS.c.id.in_(first))).rowcount


class Reports:
    """The table of reports in an open database. Any thread may use it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        make(database)
        self.database, self._clock = database, clock

    def store(self, batch: Sequence[Arrival]) -> list[Outcome]:
        """Store a batch in one transaction, durable when this returns. One outcome per report, in order."""
        # The first report of an id counts, so it must be written into the dict last.
        first = {each.head.id: each for each in reversed(batch)}
        with self.database.write() as connection:
            before = self._add(connection, first)
        return [_settle(before, head.id, data) for _, head, data in batch]

    def _add(self, connection: sa.Connection, wanted: dict[bytes, Arrival]) -> dict[bytes, bytes]:
        """Insert what is new; returns what was there before under the same ids."""
        before: dict[bytes, bytes] = {}
        # Nearly always all ids are new, and one INSERT is enough. If it skipped some, or if another process
        # took an id in between, roll back and try again with only those that are missing.
        while names := sorted(wanted.keys() - before.keys()):
            with connection.begin_nested() as attempt:
                if self._insert(connection, [wanted[name] for name in names]) == len(names):
                    break
                attempt.rollback()
            before |= _lookup(connection, names)
        return before

    def _insert(self, connection: sa.Connection, arrivals: Sequence[Arrival]) -> int:
        # Set by the writer, and never before the end of a dataset: clocks step back, and differ by machine.
        now = max(self._clock.now(), _over(connection))
        return self.database.insert_new(
            connection,
            _REPORTS,
            [
                (head.id, layout.origin, layout.purpose.value, layout.parameters, head.hour, now, data)
                for layout, head, data in arrivals
            ],
        )

    def count(self, selection: Selection | None = None) -> int:
        """How many reports are selected, or stored in all."""
        query = sa.select(sa.func.count()).select_from(_REPORTS)
        query = query if selection is None else query.where(selection.where())
        return int(self.database.rows(query)[0][0])

    def unselected(self, taken: Sequence[Selection], limit: int) -> int:
        """How many reports are in no taken selection, counted up to a limit; what is taken is not read."""
        found, one = 0, sa.select(sa.literal(1)).select_from(_REPORTS)
        with self.database.read() as connection:
            for gap in [gap for whole in selections(connection) for gap in gaps(whole, taken)]:
                some = one.where(gap.where()).limit(limit - found).subquery()
                found += connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
        return found

    def end(self, moment: int) -> None:
        """Durably end the time before a moment: whatever a clock says, no report is added to it."""
        self.database.change(sa.update(_OVER).where(_OVER.c.moment < moment).values(moment=moment))
        # Wait for writers that began before that was written: they may have an earlier time.
        self.database.settle()

    def chunks(self, selection: Selection, every: int) -> list[ChunkStart]:
        """Where each chunk of `every` reports begins, and how many it has: `chunk` reads it from there.

        They never change once `end` was called for the selection's end. Only the index is read, no report.
        """
        place = sa.func.row_number().over(order_by=_ORDER).label("place")
        numbered = sa.select(*_ORDER, place).where(selection.where()).subquery().c
        # In one statement: what is deleted meanwhile is gone from both, or from neither.
        total = sa.select(sa.func.count()).select_from(_REPORTS).where(selection.where()).scalar_subquery()
        lasts = sa.select(*numbered).where((numbered.place % every == 0) | (numbered.place == total))
        # No id is empty, so this sorts before the first report.
        marks = [(selection.start, b"", 0), *sorted(map(tuple, self.database.rows(lasts)))]
        return [ChunkStart(at, last, end - done) for (at, last, done), (_, _, end) in pairwise(marks)]

    def read(self, selection: Selection, after: Position | None = None) -> Iterator[StoredReport]:
        """Selected reports by time and id, or after a position. No transaction is open between two pages."""
        while page := self.page(selection, after, PAGE):
            yield from page
            after = page[-1]

    def page(self, selection: Selection, after: Position | None, limit: int) -> list[StoredReport]:
        """At most `limit` reports of a selection, from its start or after a position."""
        query = sa.select(_REPORTS).where(selection.where(after)).order_by(*_ORDER).limit(limit)
        return [StoredReport(*row) for row in self.database.rows(query)]

    def chunk(self, selection: Selection, start: ChunkStart) -> list[bytes]:
        """The reports of a chunk, as they were received, in its order."""
        query = sa.select(_REPORTS.c.data).where(selection.where(start)).order_by(*_ORDER).limit(start.size)
        return [data for (data,) in self.database.rows(query)]

    def check(self) -> None:
        """Return if reports can be stored; raise if not."""
        schema.check(self.database)


def _over(connection: sa.Connection) -> int:
    """The time before which nothing is added any more. Straight to the driver: every upload asks."""
    return int(connection.exec_driver_sql(_MOMENT).scalar_one())


def _settle(settled: dict[bytes, bytes], name: bytes, data: bytes) -> Outcome:
    """The outcome of the next report of a batch: the first under a free id is the stored one."""
    if name not in settled:
        settled[name] = data
        return Outcome.STORED
    return Outcome.DUPLICATE if settled[name] == data else Outcome.CONFLICT


def _lookup(connection: sa.Connection, ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """The bytes stored under these ids."""
    query, named = sa.select(_REPORTS.c.id, _REPORTS.c.data), _REPORTS.c.id
    parts = (query.where(named.in_(ids[start : start + LOOKUP])) for start in range(0, len(ids), LOOKUP))
    return {row.id: row.data for part in parts for row in connection.execute(part)}
