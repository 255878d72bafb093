"""The points of a figure as jobs: run by two processes, each finished point kept at once.

A row of the CSV is a job and what it found. A run that was interrupted carries on: a job whose row is there,
with all its settings, is not run again, unless it is stale: made by code of another version. A row stays for
as long as the figure has a job for it, whether that can be run here or not; rows of other settings are
dropped.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from experiments import made, versions
from experiments import rows as tables
from experiments.rows import Row

WORKERS = 2
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Value = str | int | float | bool
Found = Mapping[str, float]
"""What a job found: `y`, and more columns if it likes."""


class Needed(NamedTuple):
    """What several jobs want to know, found once for all of them before they start."""

    find: Callable[..., Found]
    """A function of a module, as a job's."""
    arguments: tuple[Value, ...]


@dataclass(frozen=True)
class Job:
    """One point of one seed: where it stands in the plot, and all that decides what is found there."""

    dataset: str
    series: str
    x: float
    seed: int
    run: Callable[["Job"], Found]
    """A function of a module, so that another process can call it."""
    settings: Mapping[str, Value] = field(default_factory=dict)
    weight: float = 1.0
    """How long it takes beside the figure's other jobs: for the bar, and the longest go first."""
    alone: bool = False
    """Whether nothing may run beside it: where time is measured, and where services are started."""
    together: Callable[[Sequence["Job"]], Sequence[Found]] | None = None
    """What finds all points of a group at once, where one question or one start of services is enough."""
    group: str = ""
    needs: Needed | None = None
    known: Found = field(default_factory=dict)
    """What it needs, once that was found."""
    library: str = ""
    """A library that it needs beside the figure's own."""
    code: Sequence[str] = versions.ALL
    """What of our code its numbers follow from."""

    @property
    def key(self) -> str:
        """Of two jobs with the same key one is enough."""
        named = [self.dataset, self.series, self.x, self.seed, self.run.__qualname__, dict(self.settings)]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    def is_stale(self, row: Row) -> bool:
        """Whether its row was made by code of another version."""
        return row.more.get("code", "") != versions.named(self.code)

    def needed(self) -> Found:
        """What it needs, found here unless that was done already."""
        assert self.needs is not None, "who asks has said what it needs"
        return self.known or self.needs.find(*self.needs.arguments)


Advance = Callable[[float], object]
"""Told the weight of every job that is done."""


def run(
    wanted: Sequence[Job],
    path: Path,
    advance: Advance = float,
    known: Sequence[Job] | None = None,
    is_fresh: bool = False,
) -> list[Row]:
    """The rows of all known jobs, in their order, once those wanted are run; kept from the first one on.

    Known are all jobs of a figure; wanted are those that can be run here. An earlier run had more, perhaps.
    `is_fresh`: run all that are wanted, whatever is there.
    """
    every = wanted if known is None else known
    found, commit = {row.key: row for row in kept(every, path)}, made.commit()
    missing = {
        job.key: job for job in wanted if is_fresh or job.key not in found or job.is_stale(found[job.key])
    }
    advance(sum(job.weight for job in wanted if job.key not in missing))
    for job, row in _run(sorted(missing.values(), key=lambda job: -job.weight)):
        of = {"commit": commit, "code": versions.named(job.code)}
        found[job.key] = row._replace(more={**row.more, **of})
        tables.write(path, [found[job.key] for job in every if job.key in found])
        advance(job.weight)
    return [found[job.key] for job in every if job.key in found]


def kept(jobs: Sequence[Job], path: Path) -> list[Row]:
    """What an earlier run has found of these, for this figure or for another one in the folder."""
    others = [each for each in sorted(path.parent.glob("*.csv")) if each != path]
    rows = [row for each in (*others, path) for row in tables.read(each)]
    known, found = {job.key: job for job in jobs}, {}
    for row in rows:
        job = known.get(row.key)
        if job and not (row.key in found and job.is_stale(row)):
            found[row.key] = row
    return [found[job.key] for job in jobs if job.key in found]


def stale(jobs: Sequence[Job], path: Path) -> list[Row]:
    """What of that was made by code of another version."""
    known = {job.key: job for job in jobs}
    return [row for row in kept(jobs, path) if known[row.key].is_stale(row)]


_Call = tuple[Job, ...]
"""Jobs that are one call: one, or a group."""


def _run(jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
    """As they are done: first those that go together, then one by one."""
    if not jobs:
        return
    with _one_thread(), ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        calls = _calls(_told(pool, jobs))
        yield from _done(pool, [call for call in calls if not call[0].alone])
        for call in calls:
            if call[0].alone:
                yield from _done(pool, [call])


def _told(pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> list[Job]:
    """The same jobs, with what they need: each such thing is found once, by whoever is free."""
    finding = {
        needs: pool.submit(needs.find, *needs.arguments)
        for needs in dict.fromkeys(job.needs for job in jobs)
        if needs is not None
    }
    found = {needs: dict(future.result()) for needs, future in finding.items()}
    return [job if job.needs is None else replace(job, known=found[job.needs]) for job in jobs]


def _calls(jobs: Sequence[Job]) -> list[_Call]:
    """In the order of the jobs; a group stands where its first is."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.group or job.key, []).append(job)
    return [tuple(group) for group in groups.values()]


def _done(pool: ProcessPoolExecutor, calls: Sequence[_Call]) -> Iterator[tuple[Job, Row]]:
    waiting: dict[Future[list[Row]], _Call] = {pool.submit(_rows, call): call for call in calls}
    try:
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield from zip(waiting.pop(future), future.result(), strict=True)
    finally:
        for future in waiting:
            future.cancel()


def _rows(call: _Call) -> list[Row]:
    """In a process of its own. Jobs of a group took equal parts of its time."""
    start, together = time.perf_counter(), call[0].together
    found = [job.run(job) for job in call] if together is None else together(call)
    took = (time.perf_counter() - start) / len(call)
    return [_row(job, each, took) for job, each in zip(call, found, strict=True)]


def _row(job: Job, found: Found, took: float) -> Row:
    columns = {**job.settings, **found}
    more = {name: tables.text(value) for name, value in columns.items() if name != "y"}
    return Row(job.key, job.dataset, job.series, job.x, job.seed, found["y"], round(took, 2), more)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two processes have two cores: more threads would only wait for each other.

    Said here, before they start: numpy and torch read it when they are imported.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
