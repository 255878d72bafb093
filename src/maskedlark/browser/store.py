"""The browser's own durable store: sources, what is scheduled, and reports that wait to be sent.

One SQLite file. Every change is a transaction, so a browser that is killed anywhere carries on: nothing that
was registered is lost, and a report is either not made yet or made once, with its bytes kept for a resend.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from maskedlark.browser.sources import Kind, Source
from maskedlark.core.purpose import Purpose

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, parameters BLOB NOT NULL,
    kind TEXT NOT NULL, destination TEXT NOT NULL, keys TEXT NOT NULL, features TEXT NOT NULL,
    registered INTEGER NOT NULL, ends INTEGER NOT NULL, conversion TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS sources_by_destination ON sources (destination, origin);
CREATE TABLE IF NOT EXISTS scheduled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, due INTEGER NOT NULL, origin TEXT NOT NULL,
    parameters BLOB NOT NULL, purpose TEXT NOT NULL, tag TEXT, source INTEGER, decoy INTEGER
);
CREATE INDEX IF NOT EXISTS scheduled_by_due ON scheduled (due);
CREATE INDEX IF NOT EXISTS scheduled_by_source ON scheduled (source);
CREATE TABLE IF NOT EXISTS pending (
    number INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, report BLOB NOT NULL, refused TEXT
);
"""
_SCHEDULED = "due, origin, parameters, purpose, tag, source, decoy"


@dataclass(frozen=True)
class Scheduled:
    """A report to be made at its moment, drawn when a source was registered: of the source, or of a decoy."""

    due: int
    origin: str
    parameters: bytes
    purpose: Purpose
    tag: str | None
    source: int | None
    decoy: int | None
    number: int = 0


class Store:
    """What a browser remembers. The path may be ":memory:" for simulations that need no memory."""

    SYNCHRONOUS = "FULL"
    """Every transaction is on the disk before it counts."""

    def __init__(self, path: Path | str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {self.SYNCHRONOUS}")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def add_source(self, source: Source) -> int:
        """A new source; returns its number."""
        features = json.dumps({tag: data.hex() for tag, data in source.features.items()})
        row = (
            source.origin,
            source.parameters,
            source.kind,
            source.destination,
            json.dumps(dict(source.keys)),
            features,
        )
        cursor = self._connection.execute(
            "INSERT INTO sources (origin, parameters, kind, destination, keys, features, registered, ends) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, source.registered, source.ends),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def sources_of(self, origin: str, destination: str) -> list[Source]:
        """The sources that a conversion could count for."""
        rows = self._connection.execute(
            "SELECT * FROM sources WHERE destination = ? AND origin = ?", (destination, origin)
        )
        return [_source(row) for row in rows]

    def source(self, number: int) -> Source:
        """One source, with all that was attributed to it."""
        return _source(
            self._connection.execute("SELECT * FROM sources WHERE number = ?", (number,)).fetchone()
        )

    def count_sources(self, origin: str) -> int:
        """How many sources of an origin are alive."""
        row = self._connection.execute("SELECT count(*) FROM sources WHERE origin = ?", (origin,)).fetchone()
        return int(row[0])

    def set_values(self, number: int, values: Mapping[str, int]) -> None:
        """What is attributed to a source by now."""
        self._connection.execute(
            "UPDATE sources SET conversion = ? WHERE number = ?", (json.dumps(dict(values)), number)
        )

    def schedule(self, reports: Iterable[Scheduled]) -> None:
        """Remember reports to be made."""
        self._connection.executemany(
            f"INSERT INTO scheduled ({_SCHEDULED}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            [(s.due, s.origin, s.parameters, s.purpose, s.tag, s.source, s.decoy) for s in reports],
        )

    def due(self, at: int) -> list[Scheduled]:
        """The reports whose moment has come."""
        rows = self._connection.execute(f"SELECT {_SCHEDULED}, number FROM scheduled WHERE due <= ?", (at,))  # noqa: S608
        return [Scheduled(row[0], row[1], row[2], Purpose(row[3]), *row[4:]) for row in rows]

    def made(self, scheduled: Scheduled, report: bytes) -> None:
        """A report was made: it waits to be sent now. A source without further reports is forgotten."""
        self._connection.execute("DELETE FROM scheduled WHERE number = ?", (scheduled.number,))
        # Once one report is made nothing more counts for the source, even if the clock jumps back: its
        # reports have to agree.
        self._connection.execute("UPDATE sources SET ends = 0 WHERE number = ?", (scheduled.source,))
        self._connection.execute(
            "INSERT INTO pending (origin, report) VALUES (?, ?)", (scheduled.origin, report)
        )
        self._connection.execute(
            "DELETE FROM sources WHERE number = ? AND NOT EXISTS (SELECT 1 FROM scheduled WHERE source = ?)",
            (scheduled.source, scheduled.source),
        )

    def pending(self, origin: str, most: int) -> list[tuple[int, bytes]]:
        """Reports that wait to be sent, in random order."""
        rows = self._connection.execute(
            "SELECT number, report FROM pending WHERE origin = ? AND refused IS NULL "
            "ORDER BY random() LIMIT ?",
            (origin, most),
        )
        return list(rows)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """The ad server has stored these for good."""
        with self.transaction():
            self._connection.executemany(
                "DELETE FROM pending WHERE number = ?", [(number,) for number in numbers]
            )

    def refuse(self, number: int, reason: str) -> None:
        """The ad server will never take this one: it is kept aside, with the reason."""
        self._connection.execute("UPDATE pending SET refused = ? WHERE number = ?", (reason, number))


def _source(row: Sequence[object]) -> Source:
    number, origin, parameters, kind, destination, keys, features, registered, ends, values = row
    decoded = {tag: bytes.fromhex(data) for tag, data in json.loads(str(features)).items()}
    return Source(
        number,  # type: ignore[arg-type]
        str(origin),
        parameters,  # type: ignore[arg-type]
        Kind(str(kind)),
        str(destination),
        json.loads(str(keys)),
        decoded,
        registered,  # type: ignore[arg-type]
        ends,  # type: ignore[arg-type]
        json.loads(str(values)),
    )
