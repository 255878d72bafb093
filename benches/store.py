"""Storing reports: the ad server's uploads beside a bare bulk insert into the same table, both databases."""

import gc
import sqlite3
import statistics
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg.types.string import BytesBinaryDumper

from benches.timing import seconds
from maskedlark.adserver.config import Limits
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.uploads import UploadHandler
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.wire import uploads
from maskedlark.wire.report import HEAD_BYTES, Head
from tests.databases import fresh_database, postgresql_server
from tests.unit.parameters.cases import make

FEATURES = 100
MODEL = {
    "tag": "bench",
    "columns": [{"kind": "bytes", "count": FEATURES}],
    "labels": [{"kind": "binary"}],
    "gradient_bound": 1.0,
}
DOCUMENT = make(models=[MODEL], decoys=[], fake_rate=0.0)
REPORTS = 1000
"""In an upload, and in a bare insert."""
UPLOADS, ROUNDS = 5, 21
HOUR = 480_000
NOW = HOUR * 3600

Row = tuple[bytes, str, str, bytes, int, int, bytes]
Store = Callable[[list[Row]], object]


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """From the bytes of an upload to the bytes of its answer, and durable, on either side by one client."""
    with tempfile.TemporaryDirectory() as folder, postgresql_server(uuid.uuid4().hex) as server:
        path, postgresql = Path(folder) / "reports.db", fresh_database(server)
        return {
            "reports_in_an_upload": REPORTS,
            "report_bytes": len(_rows(1)[0][-1]),
            **_compare("sqlite", f"sqlite:///{path}", lambda: _bare_sqlite(path), progress),
            **_compare("postgresql", postgresql, lambda: _bare_postgresql(postgresql), progress),
        }


def _compare(
    name: str, url: str, bare: Callable[[], Store], progress: Callable[[str], None]
) -> dict[str, object]:
    """They take turns at one growing table, so each meets the same state of it."""
    clock = FixedClock(NOW)
    database = open_database(url)
    handler = UploadHandler("ads.example", Reports(database, clock), clock, lambda: [DOCUMENT], Limits())
    insert = bare()

    def ours(bodies: list[bytes]) -> None:
        for body in bodies:
            answer = uploads.encode_answers(handler.accept(body))
            assert answer.count(b"stored") == REPORTS

    def peer(batches: list[list[Row]]) -> None:
        for rows in batches:
            insert(rows)

    pairs = []
    for turn in range(ROUNDS + 1):
        progress(f"{name}, round {turn} of {ROUNDS}")
        bodies = [uploads.encode_batch([row[-1] for row in _rows(REPORTS)]) for _ in range(UPLOADS)]
        # In the order of their ids, as the ad server inserts them: that is the faster one.
        batches = [sorted(_rows(REPORTS)) for _ in range(UPLOADS)]
        gc.collect()
        sides = {ours: lambda mine=bodies: ours(mine), peer: lambda theirs=batches: peer(theirs)}
        took = {side: seconds(sides[side]) for side in ((ours, peer) if turn % 2 else (peer, ours))}
        pairs.append((took[ours], took[peer]))
    database.close()
    del pairs[0]  # Both had to warm up.
    return {
        f"{name}_reports_per_s": round(UPLOADS * REPORTS / statistics.median(mine for mine, _ in pairs)),
        f"{name}_bare_per_s": round(UPLOADS * REPORTS / statistics.median(theirs for _, theirs in pairs)),
        f"{name}_ratio": round(statistics.median(theirs / mine for mine, theirs in pairs), 3),
    }


def _bare_sqlite(path: Path) -> Store:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")

    def insert(rows: list[Row]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")

    return insert


def _bare_postgresql(url: str) -> Store:
    """COPY, which is faster than any INSERT, with the fastest way to write bytes that psycopg has."""
    connection = psycopg.connect(url)
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)
    types = ["bytea", "varchar", "varchar", "bytea", "int8", "int8", "bytea"]

    def insert(rows: list[Row]) -> None:
        with connection.cursor() as cursor, cursor.copy("COPY reports FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
        connection.commit()

    return insert


def _rows(count: int) -> list[Row]:
    """Reports of one document and hour, as the table has them; random bytes are as good as sealed ones."""
    rng = SystemRandomness()
    layout = DOCUMENT.layout(Purpose.TRAIN)
    sealed = layout.size - len(layout.prefix) - HEAD_BYTES
    made: list[Row] = []
    for _ in range(count):
        head = Head(rng.bytes(16), HOUR, rng.bytes(32))
        data = layout.prefix + head.encode() + rng.bytes(sealed)
        made.append((head.id, layout.origin, layout.purpose.value, layout.parameters, HOUR, NOW, data))
    return made
