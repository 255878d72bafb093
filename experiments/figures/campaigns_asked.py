"""Asking the campaign report of two helpers, in memory and over HTTP, and judging it by the truth.

In memory it goes through `workflow`, with ledgers that are charged, past browsers and HTTP.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.data import hillstrom
from experiments.data.hillstrom import Customers
from experiments.jobs import Found, Job
from maskedlark.adserver.table import Table
from maskedlark.browser.population import Population, processes
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.functions.function import Group
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.workflow import ByTag, Workflow

COARSE_KEYS, FINE_KEYS = hillstrom.KEYS[:2], hillstrom.KEYS
VALUES = ("visit", "conversion", "spend")
MAX_SPEND, LESS_SPEND = 500, 200
"""What a purchase may count at most, in dollars: no customer spent more than 499, and a sixth of all spend
lies above 200 a customer."""
CONFIDENCE = 0.95
K = 50
_NO_CUT, _NOW = 1 << 30, 1_900_000_000


class Series(NamedTuple):
    """A line of the plot: one value of the report, with the most that a purchase may count."""

    value: str
    most_spend: int = MAX_SPEND


SERIES: Mapping[str, Series] = {
    "visits": Series("visit"),
    "conversions": Series("conversion"),
    "spend, up to $500 a customer": Series("spend"),
    "spend, cut at $200": Series("spend", LESS_SPEND),
}
FINE = {"visits, small groups": "visit", "conversions, small groups": "conversion"}
"""The same against k, by all keys."""
_DECLARED = """
k = {k}
keys = ["segment", "channel", "zip_code", "history_segment"]
budget = {{epsilon = 100.0, delta = 0.0}}
values = {{visit = [0, 1], conversion = [0, 1], spend = [0, {most_cents}]}}
mechanisms.sums = {{kind = "laplace", noise_floor = 0.01}}
"""


def asked(job: Job) -> Found:
    """One column of a report in memory."""
    (found,) = together([job])
    return found


def together(jobs: Sequence[Job]) -> list[Found]:
    """One report in memory, and of its columns those that lines show. All jobs have the same settings."""
    job, given = jobs[0], jobs[0].settings
    k, most_spend = int(given["k"]), int(given["most_spend"])
    by = FINE_KEYS if job.series in FINE else COARSE_KEYS
    noise, confidence = noise_of(float(given["epsilon"])), float(given["confidence"])
    with _helpers(k, most_spend, job.seed) as way:
        way.hold("campaign", Purpose.AGGREGATE, _held(most_spend))
        shown = way.query(VALUES, by, noise=noise, confidence=confidence)
    return [judged(shown, _all_truths(by, most_spend), _value(each.series)) for each in jobs]


def _value(series: str) -> str:
    return FINE.get(series) or SERIES[series].value


def asked_over_http(job: Job) -> Found:
    """The same report of real services: reports sealed, uploaded, sent to helpers, frozen there, asked."""
    start, k, most_spend = time.perf_counter(), int(job.settings["k"]), int(job.settings["most_spend"])
    some = first(hillstrom.load(), int(job.settings["customers"]))
    settings = _DECLARED.format(k=k, most_cents=100 * most_spend)
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), settings, SystemRandomness()) as made,
        made.client() as client,
    ):
        _upload(made, some, most_spend)
        time.sleep(1.1)  # A dataset ends with a whole second.
        client.select("campaign")
        client.send("campaign")
        frozen = time.perf_counter() - start
        shown = client.query(VALUES, by=COARSE_KEYS, epsilon=float(job.settings["epsilon"]))
    truth = truths(some, COARSE_KEYS, most_spend)
    intervals = len(shown.rows) * len(VALUES)
    held = statistics.fmean(judged(shown, truth, value)["coverage"] for value in VALUES) / 100
    more = {"held": round(held * intervals), "intervals": intervals, "noise": shown.noise}
    return {**judged(shown, truth, "visit"), **more, "until_frozen_s": frozen}


def _upload(made: LocalCluster, some: Customers, most_spend: int) -> None:
    document = made.document
    seen = SystemClock().now() - document.attribution_window_s - document.delay.max_s - 3600
    with processes(2) as makers:
        population = Population(document, made.sealing_keys(), seen, SystemRandomness(), makers)
        keys = [list(some.keys[name]) for name in document.keys]
        made.upload(population.measure(keys, _values(some, most_spend)))


def noise_of(epsilon: float) -> float:
    """The multiplier with which a report of three columns costs that much."""
    return accountant.noise_for("laplace", len(VALUES), epsilon, 0.0)


def _helpers(k: int, most_spend: int, seed: int) -> Workflow:
    """Two, in memory. All that they draw follows from the seed."""
    settings = _DECLARED.format(k=k, most_cents=100 * most_spend)
    own, first, second = (
        FixedRandomness(f"maskedlark experiments draws of {who} {seed}".encode())
        for who in ("all", "helper-0", "helper-1")
    )
    return Workflow.declared(settings, 2, FixedClock(_NOW), own, [first, second])


@cache
def _held(most_spend: int) -> list[ByTag]:
    """All customers' records, as each helper holds them."""
    everyone = hillstrom.load()
    with _helpers(K, most_spend, 0) as way:
        keys = [everyone.keys[name] for name in way.document.keys]
        digest = way.make_aggregate_dataset("campaign", keys, _values(everyone, most_spend), decoded=True)
        return [helper.datasets[digest].held for helper in way.helpers]


def _values(some: Customers, most_spend: int) -> list[NDArray[np.int64]]:
    """As browsers report them: a purchase counts at most what was declared."""
    return [some.visit, some.conversion, np.minimum(some.spend, 100 * most_spend)]


def first(customers: Customers, count: int) -> Customers:
    """So many of them, the first."""
    keys = {name: column[:count] for name, column in customers.keys.items()}
    return Customers(keys, *(column[:count] for column in customers[1:]))


# Judging.


class Truth(NamedTuple):
    """One group in the clear: its records, and of each value what there was and what was counted of it."""

    records: int
    all: tuple[int, ...]
    counted: tuple[int, ...]


def truths(some: Customers, by: Sequence[str], most_spend: int) -> dict[Group, Truth]:
    """Every group, in the clear."""
    named = list(zip(*(some.keys[name] for name in by), strict=True))
    groups = sorted(set(named))
    places = dict(zip(groups, range(len(groups)), strict=True))
    codes = np.array([places[each] for each in named])
    columns = [np.ones(len(some)), *_values(some, _NO_CUT), *_values(some, most_spend)]
    # Whole numbers, far below 2^53: floats add them up exactly.
    totals = [np.bincount(codes, column, len(groups)).astype(int).tolist() for column in columns]
    cut = 1 + len(VALUES)
    return {
        group: Truth(found[0], found[1:cut], found[cut:])
        for group, found in zip(groups, zip(*totals, strict=True), strict=True)
    }


@cache
def _all_truths(by: tuple[str, ...], most_spend: int) -> dict[Group, Truth]:
    return truths(hillstrom.load(), by, most_spend)


def judged(shown: Table, truth: Mapping[Group, Truth], value: str) -> Found:
    """How far the report is off in the groups that it shows, and how much it does not show.

    Off from what was spent, not from what was counted of it: a cut is an error too. An error is a part of the
    truth, and of 1 where that is 0. Whether intervals hold is asked of what was counted: they show noise.
    """
    place = VALUES.index(value)
    cells = [(truth[row.group], row.numbers[place]) for row in shown.rows]
    errors = [abs(cell.estimate - own.all[place]) / max(own.all[place], 1) for own, cell in cells]
    held = [cell.low <= own.counted[place] <= cell.high for own, cell in cells]
    seen, everyone = sum(own.records for own, _ in cells), sum(own.records for own in truth.values())
    return {
        "y": 100 * statistics.fmean(errors),
        "coverage": 100 * statistics.fmean(held),
        "groups": len(truth),
        "hidden_groups": 100 * (1 - len(cells) / len(truth)),
        "hidden_records": 100 * (1 - seen / everyone),
    }
