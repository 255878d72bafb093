"""Browsers upload to a running ad server: how many a second, and how long they wait, also while it ingests.

The ad server is `maskedlark adserver serve` over SQLite. Uploads come as from browsers that know nothing
of each other: at random moments, whether or not those before were answered, and an upload's time runs from
the moment at which it should have been sent. The highest rate is searched for whose p99 stays within a bar.
"""

import asyncio
import os
import random
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benches.timing import seconds
from maskedlark.adserver.client import Client
from maskedlark.adserver.sending import Progress
from maskedlark.browser.population import Population, processes
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.wire import uploads
from maskedlark.wire.report import ReportLayout

SETTINGS = """
keys = ["campaign", "place"]
k = 100
budget = {epsilon = 8.0, delta = 0.0}
[values]
bought = [0, 1]
euros = [-20, 200]
"""
MAX_REPORTS = 4
"""In an upload: a browser has one or a few that are due."""
P99_BAR_MS = 250.0
CONNECTIONS = 256
"""Browsers at a time, each with a connection that stays. More than the ad server takes bodies at once, so
what it refuses is seen here."""
FIRST_RATE, MIN_RATE, MAX_RATE = 100.0, 10.0, 12_800.0
CLOSE = 1.1
"""The search ends when the rate that held and the one that did not are so close."""
STEP_S, LAST_STEP_S, SEARCH_S = 3.0, 5.0, 35.0
TRIES = 3
"""Of the last step: each failure takes the rate down a little."""
PATIENCE_S = 10.0
DATASET = 40_000
"""Reports that helpers ingest meanwhile; sent again as another dataset when it is through."""
COMMITS, COMMIT_ROUNDS = 300, 3


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """One machine for all: browsers, ad server, and two helpers, which ingest or wait."""
    rng = SystemRandomness()
    with (
        tempfile.TemporaryDirectory() as folder,
        processes(2) as makers,
        ProcessPoolExecutor(1, get_context("spawn")) as browsers,
        local_cluster(Path(folder), SETTINGS, rng, workers=os.cpu_count()) as made,
    ):
        load = _Load(made, makers, browsers, progress)
        load.step(FIRST_RATE, 1.0)  # Everything had to warm up.
        commits = [_bare_commits(Path(folder), load)]
        alone = _search(load)
        commits.append(_bare_commits(Path(folder), load))
        with _ingesting(load) as ingested:
            beside = _search(load)
        with closing(sqlite3.connect(Path(folder) / "reports.sqlite")) as database:
            (stored,) = database.execute("SELECT count(*) FROM reports").fetchone()
    lost = max(0, load.acknowledged - stored)
    commits_per_s = statistics.median(commits)
    return {
        "reports_in_an_upload": f"1 to {MAX_REPORTS}",
        "report_bytes": load.report_bytes,
        "uploads": load.sent,
        "lost": lost,
        **_figures(alone, "", lost),
        "bare_commits_per_s": round(commits_per_s),
        "commit_ratio": round(alone.rate / commits_per_s, 3),
        **_figures(beside, "_ingesting", lost),
        "ingested_parts_per_s": round(ingested()),
    }


class _Step(NamedTuple):
    """What became of the uploads of a few seconds."""

    rate: float
    waited_ms: Sequence[float]
    """From the intended moment to the last byte of the answer, in order."""
    errors: int
    """Uploads that were refused, failed, or were not answered for all their reports."""

    def quantile(self, part: float) -> float:
        return self.waited_ms[min(len(self.waited_ms) - 1, int(part * len(self.waited_ms)))]

    @property
    def held(self) -> bool:
        return self.errors == 0 and self.quantile(0.99) <= P99_BAR_MS


def _figures(step: _Step, suffix: str, lost: int) -> dict[str, object]:
    return {
        f"uploads_per_s{suffix}": round(step.rate),
        f"p50_ms{suffix}": round(step.quantile(0.5), 1),
        f"p99_ms{suffix}": round(step.quantile(0.99), 1),
        f"errors{suffix}": step.errors + lost,
    }


def _search(load: "_Load") -> _Step:
    """Between a rate that holds and one that does not, ever closer; what is left is tried for longer."""
    end = time.monotonic() + SEARCH_S
    low, high = _between(load)
    while high / low > CLOSE and time.monotonic() < end:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _holds(load, middle) else (low, middle)
    last = load.step(low, LAST_STEP_S)
    for attempt in range(1, TRIES):
        if last.held:
            break
        last = load.step(low / CLOSE**attempt, LAST_STEP_S)
    return last


def _between(load: "_Load") -> tuple[float, float]:
    """Twice the rate until it does not hold; or half of it until it does."""
    low = high = FIRST_RATE
    if _holds(load, FIRST_RATE):
        while high < MAX_RATE and _holds(load, high := 2 * low):
            low = high
        return low, high
    while low > MIN_RATE and not _holds(load, low := high / 2):
        high = low
    return low, high


def _holds(load: "_Load", rate: float) -> bool:
    """A shared machine has slow spells: only what fails twice does not hold."""
    return load.step(rate, STEP_S).held or load.step(rate, STEP_S).held


# The browsers' side.


@dataclass
class _Load:
    """Uploads to one ad server, each of reports that nobody has sent before."""

    made: LocalCluster
    makers: Executor
    browsers: Executor
    progress: Callable[[str], None]
    sent: int = 0
    acknowledged: int = 0
    """Reports that the ad server says it has."""
    report_bytes: int = 0

    def step(self, rate: float, for_s: float) -> _Step:
        """Send at this rate for so long, and wait for every answer."""
        moments = sorted(random.uniform(0, for_s) for _ in range(round(rate * for_s)))
        batches = self._batches(len(moments))
        requests = [(_request(uploads.encode_batch(batch)), len(batch)) for batch in batches]
        address = urlsplit(self.made.adserver.address)
        driven = self.browsers.submit(_drive, address.hostname or "", address.port or 0, requests, moments)
        answers = driven.result()
        taken = [size for (_, size), answer in zip(requests, answers, strict=True) if answer.ok]
        self.sent, self.acknowledged = self.sent + len(requests), self.acknowledged + sum(taken)
        waited = sorted(1000 * answer.waited_s for answer in answers)
        step = _Step(rate, waited, len(requests) - len(taken))
        p50, p99 = step.quantile(0.5), step.quantile(0.99)
        self.progress(f"{rate:.0f}/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {step.errors} errors")
        return step

    def reports(self, count: int) -> list[bytes]:
        """Fresh ones, sealed by the processes that make them."""
        document, rng = self.made.document, SystemRandomness()
        seen = SystemClock().now() - document.attribution_window_s - document.delay.max_s - 3600
        population = Population(document, self.made.sealing_keys(), seen, rng, self.makers)
        keys = [["autumn", "spring"][each] for each in rng.below(2, count).tolist()]
        values = [rng.below(2, count), rng.below(200, count)]
        made = [each for some in population.measure([keys, keys], values) for each in some]
        self.report_bytes = len(made[0])
        return made

    def _batches(self, count: int) -> Iterator[list[bytes]]:
        sizes = [random.randint(1, MAX_REPORTS) for _ in range(count)]
        fresh = iter(self.reports(sum(sizes)))
        return ([next(fresh) for _ in range(size)] for size in sizes)


class _Answer(NamedTuple):
    ok: bool
    waited_s: float


def _request(body: bytes) -> bytes:
    head = f"POST /v2/reports HTTP/1.1\r\nHost: ads\r\nContent-Type: {uploads.CONTENT_TYPE}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _drive(
    host: str, port: int, requests: Sequence[tuple[bytes, int]], moments: Sequence[float]
) -> list[_Answer]:
    """In a process of its own: so bare that it is not what is measured."""
    return asyncio.run(_Browsers(host, port).send(requests, moments))


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Browsers:
    """Connections to the ad server, each with one upload at a time; the one idle for longest is next."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._idle: asyncio.Queue[Connection] = asyncio.Queue()

    async def send(self, requests: Sequence[tuple[bytes, int]], moments: Sequence[float]) -> list[_Answer]:
        for _ in range(CONNECTIONS):
            self._idle.put_nowait(await self._connect())
        start, sending = time.perf_counter() + 0.1, []
        for (request, size), moment in zip(requests, moments, strict=True):
            if (wait := start + moment - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            sending.append(asyncio.create_task(self._upload(request, size, start + moment)))
        answers = await asyncio.gather(*sending)
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()
        return answers

    async def _upload(self, request: bytes, size: int, intended: float) -> _Answer:
        connection = await self._idle.get()
        try:
            async with asyncio.timeout(PATIENCE_S):
                ok, stays = await _exchange(connection, request, size)
        except (OSError, EOFError, TimeoutError):
            ok, stays = False, False
        waited = time.perf_counter() - intended
        if not stays:
            connection[1].close()
            connection = await self._connect()
        self._idle.put_nowait(connection)
        return _Answer(ok, waited)

    async def _connect(self) -> Connection:
        return await asyncio.open_connection(self._host, self._port)


async def _exchange(connection: Connection, request: bytes, size: int) -> tuple[bool, bool]:
    """Whether every report was stored, and whether the connection stays."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    ok = head.startswith(b"http/1.1 200") and body.count(b'"stored"') == size
    return ok, b"connection: close" not in head


# What else goes on, and the limit.


@contextmanager
def _ingesting(load: _Load) -> Iterator[Callable[[], float]]:
    """Helpers ingest while the block runs; yields how many parts a second both took together."""
    load.progress(f"making a dataset of {DATASET} reports")
    start = _next_second()
    reports = load.reports(DATASET)
    load.acknowledged += load.made.upload([reports[at : at + 1000] for at in range(0, DATASET, 1000)])
    end, over = _next_second(), threading.Event()
    taken, began = [0], time.monotonic()

    def send(client: Client) -> None:
        number = 0
        while not over.is_set():
            number += 1
            client.select(f"again-{number}", start, end, Purpose.AGGREGATE)
            with suppress(_Enough):
                client.send(f"again-{number}", _stop_early(over, taken))
            client.abort(f"again-{number}")

    with load.made.client() as client:
        sending = threading.Thread(target=send, args=(client,))
        sending.start()
        try:
            yield lambda: taken[0] / (ended - began)
        finally:
            assert sending.is_alive(), "the helpers stopped to ingest"
            over.set()
            sending.join()
            ended = time.monotonic()


class _Enough(Exception):
    """The last chunk was sent: the dataset is taken back instead of frozen, so its reports can come again."""


def _stop_early(over: threading.Event, taken: list[int]) -> Progress:
    there: dict[str, int] = {}

    def progress(helper: str, sent: int, reports: int) -> None:
        taken[0] += sent - there.get(helper, sent)
        there[helper] = sent
        if over.is_set() or sent == reports:
            raise _Enough

    return progress


def _bare_commits(folder: Path, load: _Load) -> float:
    """Durable commits a second of as many bytes, one after another, by one connection with our settings."""
    with closing(sqlite3.connect(folder / "bare.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("ATTACH ? AS theirs", (str(folder / "reports.sqlite"),))
        made = "SELECT sql FROM theirs.sqlite_master WHERE tbl_name = 'reports' AND sql IS NOT NULL"
        statements = [sql for (sql,) in connection.execute(made)]
        connection.execute("DETACH theirs")
        for sql in statements:
            with suppress(sqlite3.OperationalError):  # It was here before.
                connection.execute(sql)
        return statistics.median(_commit(connection, load) for _ in range(COMMIT_ROUNDS))


def _commit(connection: sqlite3.Connection, load: _Load) -> float:
    layout = load.made.document.layout(Purpose.AGGREGATE)
    batches = [[_row(layout, each) for each in batch] for batch in load._batches(COMMITS)]

    def commit() -> None:
        for rows in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    return COMMITS / seconds(commit)


def _row(layout: ReportLayout, data: bytes) -> tuple[bytes, str, str, bytes, int, int, bytes]:
    head = layout.head(data)
    return (head.id, layout.origin, layout.purpose.value, layout.parameters, head.hour, 0, data)


def _next_second() -> int:
    """The beginning of the next second, when it is there."""
    now = int(time.time())
    while int(time.time()) <= now:
        time.sleep(0.02)
    return int(time.time())
