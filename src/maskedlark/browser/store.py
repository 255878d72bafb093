"""The browser's own durable store: sources, scheduled reports, and reports that wait to be sent.

One SQLite file. Every change is a transaction, so a browser killed at any point can resume: nothing that was
registered is lost, and a report is either not made yet or made once, with its bytes kept for a resend.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from maskedlark.browser.sources import Kind, Source
from maskedlark.core.decimals import Number
from maskedlark.core.purpose import Purpose

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, parameters BLOB NOT NULL,
    kind TEXT NOT NULL, destination TEXT NOT NULL, keys TEXT NOT NULL, features TEXT NOT NULL,
    registered INTEGER NOT NULL, ends INTEGER NOT NULL, conversions INTEGER NOT NULL DEFAULT 0,
    attributed TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS sources_by_destination ON sources (destination, origin);
CREATE TABLE IF NOT EXISTS triggers (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, destination TEXT NOT NULL,
    happened INTEGER NOT NULL, last_source INTEGER NOT NULL, carried TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS scheduled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, due INTEGER NOT NULL, origin TEXT NOT NULL,
    parameters BLOB NOT NULL, purpose TEXT NOT NULL, tag TEXT, source INTEGER, decoy INTEGER
);
CREATE INDEX IF NOT EXISTS scheduled_by_due ON scheduled (due);
CREATE INDEX IF NOT EXISTS scheduled_by_source ON scheduled (source);
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, report BLOB NOT NULL, refused TEXT
);
"""
_SCHEDULED = "due, origin, parameters, purpose, tag, source, decoy"
_TRIGGER = "origin, destination, happened, last_source, carried"


@dataclass(frozen=True)
class Scheduled:
    """A report to be made when due, drawn when a source was registered: of the source, or of a decoy."""

    due: int
    origin: str
    parameters: bytes
    purpose: Purpose
    tag: str | None
    source: int | None
    decoy: int | None
    number: int = 0


@dataclass(frozen=True, repr=False)
class Trigger:
    """A conversion, as a page registered it: not attributed yet."""

    origin: str
    destination: str
    happened: int
    last_source: int
    """The last source that was registered before it."""
    values: Mapping[str, Number]


class Store:
    """What a browser remembers. The path may be ":memory:" for simulations that need no durability."""

    SYNCHRONOUS = "FULL"
    """Every transaction is on disk when it ends."""

    def __init__(self, path: Path | str) -> None:
        if str(path) != ":memory:":
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # nobody else may read what users did
        self._lock = threading.RLock()  # an uploader may run in a thread of its own
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {self.SYNCHRONOUS}")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Atomic, and exclusive of other writers."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, in this thread's transaction if it has one."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def add_source(self, source: Source) -> int:
        """Add a source; returns its number."""
        keys = json.dumps(dict(source.keys))
        features = json.dumps({tag: data.hex() for tag, data in source.features.items()})
        declared = source.origin, source.parameters, source.kind, source.destination, keys, features
        [(number,)] = self.run(
            "INSERT INTO sources (origin, parameters, kind, destination, keys, features, registered, ends) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            *(*declared, source.registered, source.ends),
        )
        return int(number)

    def sources_of(self, origin: str, destination: str) -> list[Source]:
        """The sources that a conversion could count for."""
        rows = self.run("SELECT * FROM sources WHERE destination = ? AND origin = ?", destination, origin)
        return [_source(row) for row in rows]

    def source(self, number: int) -> Source | None:
        """A source with everything attributed to it, or None if all its reports have been made."""
        rows = self.run("SELECT * FROM sources WHERE number = ?", number)
        return _source(rows[0]) if rows else None

    def count_sources(self, origin: str) -> int:
        """How many sources of an origin are alive."""
        [(count,)] = self.run("SELECT count(*) FROM sources WHERE origin = ?", origin)
        return int(count)

    def add_trigger(self, origin: str, destination: str, happened: int, values: Mapping[str, Number]) -> None:
        """Add a conversion. The write is the same whether or not it will count for a source."""
        last = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sources'), 0)"
        added = f"INSERT INTO triggers ({_TRIGGER}) VALUES (?, ?, ?, {last}, ?)"  # noqa: S608
        self.run(added, origin, destination, happened, json.dumps(dict(values), default=str))

    def pop_triggers(self) -> list[Trigger]:
        """The conversions that wait to be attributed, in order; deleted when the transaction ends."""
        rows = self.run(f"DELETE FROM triggers RETURNING number, {_TRIGGER}")  # noqa: S608
        return [Trigger(*(*row[1:-1], _numbers(row[-1]))) for row in sorted(rows)]

    def attributed(self, number: int, values: Mapping[str, Number]) -> None:
        """Count one more conversion for a source, whose values are now these."""
        change = "UPDATE sources SET conversions = conversions + 1, attributed = ? WHERE number = ?"
        self.run(change, json.dumps(dict(values), default=str), number)

    def schedule(self, reports: Iterable[Scheduled]) -> None:
        """Store reports to be made."""
        for report in reports:
            *row, _ = astuple(report)
            self.run(f"INSERT INTO scheduled ({_SCHEDULED}) VALUES (?, ?, ?, ?, ?, ?, ?)", *row)  # noqa: S608

    def due(self, at: int) -> list[Scheduled]:
        """The reports that are due."""
        rows = self.run(f"SELECT {_SCHEDULED}, number FROM scheduled WHERE due <= ?", at)  # noqa: S608
        return [Scheduled(row[0], row[1], row[2], Purpose(row[3]), *row[4:]) for row in rows]

    def made(self, scheduled: Scheduled, report: bytes) -> bool:
        """Put a report that was made in the outbox. False if another thread or process was faster."""
        if not self.run("DELETE FROM scheduled WHERE number = ? RETURNING number", scheduled.number):
            return False  # A second report would have another id, and count twice.
        # Now nothing more counts for the source, even if the clock jumps back: its reports must agree.
        self.run("UPDATE sources SET ends = 0 WHERE number = ?", scheduled.source)
        self.run("INSERT INTO outbox (origin, report) VALUES (?, ?)", scheduled.origin, report)
        none_left = "NOT EXISTS (SELECT 1 FROM scheduled WHERE source = sources.number)"
        self.run(f"DELETE FROM sources WHERE number = ? AND {none_left}", scheduled.source)  # noqa: S608
        return True


def _numbers(text: str) -> dict[str, Number]:
    """Values from JSON, where fractions are texts."""
    values = json.loads(text).items()
    return {name: Fraction(value) if isinstance(value, str) else value for name, value in values}


def _source(row: tuple[Any, ...]) -> Source:
    """A row of the table of sources."""
    number, origin, parameters, kind, destination, keys, features, *counted, values = row
    decoded = {tag: bytes.fromhex(data) for tag, data in json.loads(features).items()}
    known = json.loads(keys), decoded, *counted, _numbers(values)
    return Source(number, origin, parameters, Kind(kind), destination, *known)


class Outbox:
    """Reports that wait to be sent to one ad server, in a browser's store: `upload.Uploader` sends from here.

    Their bytes are kept until the ad server has stored them. Every change is durable when its method returns.
    """

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin

    def batch(self, most: int) -> list[tuple[int, bytes]]:
        """At most `most` reports that are neither acknowledged nor refused, with keys, in random order."""
        waiting = "SELECT number, report FROM outbox WHERE origin = ? AND refused IS NULL"
        return self._store.run(f"{waiting} ORDER BY random() LIMIT ?", self._origin, most)

    def acknowledge(self, keys: Sequence[int]) -> None:
        """The ad server has durably stored these."""
        with self._store.transaction():
            for key in keys:
                self._store.run("DELETE FROM outbox WHERE number = ?", key)

    def refuse(self, key: int, reason: str) -> None:
        """The ad server will never accept this one: set it aside, with the reason."""
        self._store.run("UPDATE outbox SET refused = ? WHERE number = ?", reason, key)

    def refused(self) -> list[tuple[bytes, str]]:
        """The reports that were set aside, and why."""
        aside = "SELECT report, refused FROM outbox WHERE origin = ? AND refused IS NOT NULL"
        return self._store.run(aside, self._origin)
