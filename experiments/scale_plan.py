"""The plan on paper: from measured costs to cores, hours, bytes and money for ever more reports a day.

`python -m experiments.scale_plan` prints the tables of docs/SCALE.md. Times per record are those of
docs/SPEED.md; sizes and limits are the code's own. Nothing is measured here.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from maskedlark.core.batches import room
from maskedlark.core.declared import Bytes, Model
from maskedlark.helper.sharding import HELD_BYTES, SAMPLED, row_bytes
from maskedlark.release.messages import MAX_DATASETS
from maskedlark.wire.datasets import MAX_CHUNKS, PARTS
from maskedlark.wire.report import HEAD_BYTES, ReportLayout

DAYS = (10**7, 10**9, 10**11)
"""Reports a day."""
LIFETIME_DAYS, PEAK, INGEST_HOURS = 30, 3, 8
"""How long reports live; the busiest hour over the mean; in what time a day's reports are ingested."""
SHARD_BYTES, MAX_RECORDS = 64 << 20, 1 << 31
BATCH, STEPS = 100_000, 500
CORES = 32
"""Of a machine."""

UPLOAD_S = 2 / (1600 * 2.5)
"""`load`: 1,600 uploads/s of 2.5 reports on two cores, on which the browsers ran too."""
INGEST_S = 1 / 21_365
"""`ingest`: one core of a helper, from HTTP to a frozen dataset."""
CLAIM_S = 7.8e-6
"""CONTRIBUTING.md on `helper/ids.py`: per id, under the one lock; with 713,000 ids there already."""
GROUP_S = 5.5e-3 / 1e6
"""`groupby`: a record, one core."""
STEP_S, STEP_GPU_S = 17.6e-3 / 1000, 6.8e-3 / 50_000
"""`gradient` and `gpu`: a record of a step of 784-500-10, one core, and one H200."""

CORE_HOUR, GB_MONTH, GPU_HOUR = 0.04, 0.023, 4.0
"""Dollars. Assumed, about what large providers list: a core of a machine with 4 GB for each, storage in a
bucket, an H200. Traffic, databases and people are not in it."""

MODEL = Model("m", (Bytes(100),), checked=True)
"""The reports of `ingest`: 100 bytes of features, a binary label, checked."""
LAYOUT = ReportLayout("ads.example", bytes(32), ("helper-0", "helper-1"), (MODEL,))
ROW = row_bytes({MODEL.tag: MODEL})


def plan(reports: int) -> dict[str, str]:
    """What a day of so many reports takes, and what it meets first."""
    shards = -(-reports * ROW // SHARD_BYTES)
    mean, rate, size = reports / 86_400, BATCH / reports, reports // shards
    worked = shards * room(rate, size)
    accepting, ingesting = reports * UPLOAD_S / 3600, reports * INGEST_S / 3600
    training, on_gpu = (STEPS * worked * each / 3600 for each in (STEP_S, STEP_GPU_S))
    datasets = -(-reports // min(MAX_RECORDS, MAX_CHUNKS * PARTS))
    pieces = datasets * -(-reports * (ROW + HEAD_BYTES) // datasets // HELD_BYTES) * -(-shards // datasets)
    kept = LIFETIME_DAYS * reports
    return {
        "reports a second, mean and busiest hour": f"{_short(mean)}, {_short(PEAK * mean)}",
        "ad server: accepting, core-hours": _short(accepting),
        f"ad server: machines of {CORES} cores in the busiest hour": _machines(PEAK * accepting / 24),
        f"ad server: reports of {LIFETIME_DAYS} days on disk": _bytes(reports * LAYOUT.size * LIFETIME_DAYS),
        "to helper 0, a day": _bytes(reports * LAYOUT.part_size(0)),
        "helper: opening to freezing, core-hours": _short(ingesting),
        f"helper: machines of {CORES} cores to do that in {INGEST_HOURS} h": _machines(
            ingesting / INGEST_HOURS
        ),
        f"helper: the lock on ids, busy in these {INGEST_HOURS} h": f"{_short(100 * claiming(reports))} %",
        f"helper: ids seen in {LIFETIME_DAYS} days, in every process": _bytes(16 * reports * LIFETIME_DAYS),
        "helper: columns of a day": _bytes(reports * ROW),
        "datasets a day, at least": f"{datasets:,}",
        "shards of 64 MiB a day": f"{shards:,}",
        "pieces written while freezing a day, a file each": f"{_short(pieces)}",
        "releases to ask about a day, at least": f"{-(-reports // MAX_RECORDS):,}",
        "sums by group over the day, core-seconds": _short(reports * GROUP_S),
        f"a step over {BATCH:,}: rows computed, with padding": _short(worked),
        f"{STEPS} steps of 784-500-10: core-hours": _short(training),
        f"{STEPS} steps of 784-500-10: H200-minutes": _short(60 * on_gpu),
        "memory of a session at the helper": _bytes(4 * reports),
        "ad server: cores and disk, a day": _dollars(accepting * CORE_HOUR + _disk(kept * LAYOUT.size)),
        "helper: cores and disk without training, a day": _dollars(
            (ingesting + reports * GROUP_S / 3600) * CORE_HOUR + _disk(kept * (ROW + 16))
        ),
        "helper: the training, on cores or on a GPU": f"{_dollars(training * CORE_HOUR)}, "
        f"{_dollars(on_gpu * GPU_HOUR)}",
    }


def balance(shards: int, workers: int, seed: int = 1) -> float:
    """How much more records the worker with most has than the mean: simulated.

    Ranges are cut at quantiles of a sample, so a range's share is the sum of as many gaps of uniform numbers
    as it has sampled ids, and worker i has shards i, i + workers, …
    """
    sample = max(SAMPLED, 64 * shards)
    sizes = np.random.default_rng(seed).gamma(sample / shards, size=shards)
    of = np.bincount(np.arange(shards) % workers, sizes, workers)
    return float(of.max() / of.mean())


def claiming(reports: int) -> float:
    """The part of the time of ingest in which the lock on ids is held."""
    return reports * CLAIM_S / 3600 / INGEST_HOURS


def waiting(reports: int) -> float:
    """Seconds that a chunk waits for the lock on ids: random arrivals, equal times. Infinite if too many."""
    busy = claiming(reports)
    return math.inf if busy >= 1 else busy / (2 * (1 - busy)) * PARTS * CLAIM_S


def tables() -> Iterator[str]:
    """All tables, as Markdown."""
    plans = [plan(reports) for reports in DAYS]
    heads = [
        f"10{str(len(str(each)) - 1).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}" for each in DAYS
    ]
    yield _table(["reports a day", *heads], [[name, *(each[name] for each in plans)] for name in plans[0]])
    rows = [
        [f"{workers:,}", *(f"{balance(each, workers):.2f}" for each in (264, 2112, 21120) if each >= workers)]
        for workers in (2, 16, 64, 256)
    ]
    yield _table(["workers", "264 shards", "2,112", "21,120"], rows)
    waits = [[name, _seconds(waiting(reports))] for name, reports in zip(heads, DAYS, strict=True)]
    yield _table(["reports a day", "a chunk waits for the lock on ids"], waits)
    step, table = 8 * (785 * 500 + 501 * 10), (1 << 20) * (4 + 8 + 2 * 8)
    yield (
        f"Each worker sends the helper {_bytes(step)} for a step of 784-500-10, and {_bytes(table)} for two "
        f"sums by as many keys as an answer may have. A request names at most {MAX_DATASETS} datasets.\n"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _machines(cores: float) -> str:
    return f"{math.ceil(cores / CORES):,}"


def _disk(size: float) -> float:
    """Dollars for so many bytes, for a day."""
    return size / 1e9 * GB_MONTH / 30


def _dollars(number: float) -> str:
    return f"$ {_short(number)}" if number >= 0.01 else "under $ 0.01"


def _short(number: float) -> str:
    """Two digits."""
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{_short(number)} {unit}"
        number /= 1000
    return f"{_short(number)} PB"


def _seconds(number: float) -> str:
    return "for ever" if math.isinf(number) else f"{_short(number * 1e3)} ms"


if __name__ == "__main__":
    print("\n".join(tables()))
