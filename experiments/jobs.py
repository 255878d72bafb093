"""The points of a figure as jobs: run by two processes, each finished point kept at once.

A row of the CSV is a job and what it found. A run that was interrupted carries on: a job whose row is there,
with all its settings, is not run again; rows of other settings are dropped.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from experiments import rows as tables
from experiments.rows import Row

WORKERS = 2

Setting = str | int | float | bool
Found = Mapping[str, float]
"""What a job found: `y`, and more columns if it likes."""


@dataclass(frozen=True)
class Job:
    """One point of one seed: where it stands in the plot, and all that decides what is found there."""

    dataset: str
    series: str
    x: float
    seed: int
    run: Callable[["Job"], Found]
    """A function of a module, so that another process can call it."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weight: float = 1.0
    """How long it takes beside the figure's other jobs: for the bar, and the longest go first."""
    alone: bool = False
    """Whether nothing may run beside it: where time is measured, and where services are started."""

    @property
    def key(self) -> str:
        """Of two jobs with the same key one is enough."""
        named = [self.dataset, self.series, self.x, self.seed, self.run.__qualname__, dict(self.settings)]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]


Advance = Callable[[float], object]
"""Told the weight of every job that is done."""


def run(jobs: Sequence[Job], path: Path, advance: Advance = float) -> list[Row]:
    """All jobs' rows, in the jobs' order; kept in a CSV from the first that is done."""
    keys = {job.key for job in jobs}
    kept = {row.key: row for row in tables.read(path) if row.key in keys}
    missing = {job.key: job for job in jobs if job.key not in kept}
    advance(sum(job.weight for job in jobs if job.key in kept))
    for job, row in _run(sorted(missing.values(), key=lambda job: -job.weight)):
        kept[job.key] = row
        tables.write(path, [kept[job.key] for job in jobs if job.key in kept])
        advance(job.weight)
    return [kept[job.key] for job in jobs]


def kept(jobs: Sequence[Job], path: Path) -> list[Row]:
    """What an earlier run has found of these."""
    found = {row.key: row for row in tables.read(path)}
    return [found[job.key] for job in jobs if job.key in found]


def _run(jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
    """As they are done: first those that go together, then one by one."""
    if not jobs:
        return
    with ProcessPoolExecutor(WORKERS, get_context("spawn"), _one_thread) as pool:
        yield from _done(pool, [job for job in jobs if not job.alone])
        for job in jobs:
            if job.alone:
                yield from _done(pool, [job])


def _done(pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
    waiting: dict[Future[Row], Job] = {pool.submit(_row, job): job for job in jobs}
    try:
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
    finally:
        for future in waiting:
            future.cancel()


def _row(job: Job) -> Row:
    """In a process of its own."""
    start = time.perf_counter()
    found = dict(job.run(job))
    took = time.perf_counter() - start
    more = {name: tables.text(value) for name, value in {**job.settings, **found}.items() if name != "y"}
    return Row(job.key, job.dataset, job.series, job.x, job.seed, found["y"], round(took, 2), more)


def _one_thread() -> None:
    """Two processes have two cores: more threads would only wait for each other. Before torch is loaded."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
