"""Accuracy against the whole (ε, δ) of a training, as it is accounted, for both adversaries; and Opacus.

Every run of ours has two figures: against the ad server alone, which does not know who is in a batch, and
against a coalition of it with all helpers but one, which does. Neighbours differ in one record's label, real
or fake: that is replacement, so Opacus is given twice our multiplier of the sensitivity 2ψ.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments import drawing, log_axes
from experiments import rows as tables
from experiments.costs import DELTA
from experiments.figures.accounted_run import (
    MASKED,
    ON_HTTP,
    OPACUS,
    PARTITIONED,
    QUIET,
    TASKS,
    beside,
    masked,
    needs,
    over_http,
    quiet,
)
from experiments.jobs import Job, Value
from experiments.memory import SAMPLE
from experiments.rows import Mean, Row
from experiments.size import Size

NAME = "accounted"
TITLE = "Accuracy against what a training costs, for both adversaries"


class Grid(NamedTuple):
    """What one size runs of a dataset."""

    rows: int
    """To train with: the first so many."""
    batch: int
    steps: int
    epsilons: tuple[float, ...]
    partitioned: tuple[float, ...]
    opacus: tuple[float, ...]
    weight: float
    """Seconds a run, about; Opacus takes longer."""


_BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0)
_FRACTION, _HELPERS = 20, 2
_LONGER = {"MNIST": 3.0, "online shoppers": 1.0}
"""How many times as long a run by Opacus takes."""


def _grids(size: Size) -> dict[str, Grid]:
    look, known, few = (2.0, 8.0), (2.0, 8.0, 32.0), (0.5, 2.0, 8.0)
    some = size.pick(look, _BUDGETS, _BUDGETS)
    return {
        "MNIST": size.pick(
            Grid(6000, 600, 40, look, (8.0,), look[:1], 2),
            Grid(50_000, 2000, 250, _BUDGETS, known, few, 20),
            Grid(50_000, 2000, 1000, (0.25, *_BUDGETS, 16.0), known, (0.25, *_BUDGETS, 16.0), 80),
        ),
        "online shoppers": Grid(9247, 4624, 200, some, some, some, 5),
    }


def jobs(size: Size) -> Sequence[Job]:
    """Masked at every ε, drawn both ways; Opacus, where it is installed; without noise; and over HTTP."""
    found = [job for name, grid in _grids(size).items() for job in _series(name, grid, size)]
    name, grid = "online shoppers", _grids(size)["online shoppers"]
    served = size.pick(grid._replace(rows=1000, batch=500, steps=40), grid, grid)
    job = Job(name, ON_HTTP, 2.0, 0, over_http, _settings(name, served, 2.0), size.pick(20, 60, 60), True)
    return [*found, replace(job, needs=needs(job))]


def _series(name: str, grid: Grid, size: Size) -> list[Job]:
    """One dataset's."""
    ways = ((MASKED, grid.epsilons, masked, 1.0), (PARTITIONED, grid.partitioned, masked, 1.0),
            (OPACUS, grid.opacus, beside, _LONGER[name]))  # fmt: skip
    noisy = [
        Job(name, label, epsilon, seed, way, _settings(name, grid, epsilon), longer * grid.weight)
        for label, epsilons, way, longer in ways
        for epsilon in epsilons
        for seed in size.seeds
    ]
    noisy = [replace(job, needs=needs(job)) for job in noisy]
    noisy = [
        replace(job, library=OPACUS.lower(), code=("noise",)) if job.series == OPACUS else job
        for job in noisy
    ]
    given = _settings(name, grid, 0.0)
    return [*noisy, *(Job(name, QUIET, 0.0, seed, quiet, given, grid.weight) for seed in size.seeds)]


def _settings(name: str, grid: Grid, epsilon: float) -> dict[str, Value]:
    task = TASKS[name]
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "network": "-".join(map(str, task.sizes)),
        "rows": grid.rows,
        "batch": grid.batch,
        "steps": grid.steps,
        "bound": task.bound,
        "fraction": _FRACTION,
        "sample": SAMPLE,
        "helpers": _HELPERS,
        "learning_rate": task.rate,
        "momentum": task.momentum,
    }


_LINES: Sequence[tuple[str, str, str]] = (
    (MASKED, "adserver_epsilon", "masked, against the ad server alone"),
    (MASKED, "coalition_epsilon", "the same runs, against a coalition"),
    (PARTITIONED, "coalition_epsilon", "masked, partitioned, against either"),
    (OPACUS, "adserver_epsilon", "Opacus, one trusted party"),
)


def draw(rows: Sequence[Row], out: Path) -> Sequence[str]:
    """A panel a dataset: the same runs at two costs, a partition, and Opacus."""
    names = _names(rows)
    figure = drawing.panels(
        names, ["total ε of the training, δ = 10⁻⁵"] * len(names), [TASKS[name].unit for name in names]
    )
    for axes, name in zip(figure.axes, names, strict=True):
        for place, (series, column, label) in enumerate(_LINES):
            if points := at(rows, name, series, column):
                drawing.ours(axes, points, place, label)
        for mean in tables.means(rows, name, QUIET):
            axes.axhline(mean.y, color="#555555", lw=1, ls=(0, (1, 1.5)), label=QUIET)
        log_axes.across(axes, _marks(rows, name))
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    drawing.save(figure, out / "accounted.svg")
    return ["accounted.svg"]


def at(rows: Sequence[Row], name: str, series: str, column: str) -> list[Mean]:
    """A series' means, each at what it costs by that column."""
    costs = {row.x: row.number(column) for row in tables.of(rows, name, series)}
    return [mean._replace(x=costs[mean.x]) for mean in tables.means(rows, name, series)]


def _marks(rows: Sequence[Row], name: str) -> list[float]:
    """Powers of two, from the least ε to the largest."""
    found = [mean.x for series, column, _ in _LINES for mean in at(rows, name, series, column)]
    low, high = math.floor(math.log2(min(found))), math.ceil(math.log2(max(found)))
    return [2.0**power for power in range(low, high + 1)]


def _names(rows: Sequence[Row]) -> list[str]:
    return [name for name in TASKS if tables.of(rows, name)]


def text(rows: Sequence[Row]) -> str:
    """What was run, what each point costs, and how far ours is from Opacus."""
    return "\n\n".join(filter(None, (
        _CHARGED, _settings_told(rows), _opacus(rows), _table(rows), f"{_seen(rows)} {_http(rows)}".strip()
    )))  # fmt: skip


_CHARGED = """A training is charged as a whole before its first step: all steps compose. Against the ad
server alone, who is in a batch is not known, and Poisson sampling hides it; against a coalition of the ad
server with all helpers but one, or a curious helper, batches are known, and a record costs as many releases
as batches that it is in. Where the coalition is what one fears, a fresh partition every epoch costs less at
the same noise: a record is in exactly one batch of each, nothing depends on who does not know the batches,
and both figures are the same. The ad server alone faces the noise of both helpers, √2 times that of one, and
is charged as if it knew one helper's: its figure is on the safe side."""


def _opacus(rows: Sequence[Row]) -> str:
    """Nothing, where it was not run."""
    if not any(tables.of(rows, name, OPACUS) for name in _names(rows)):
        return ""
    return """Opacus is what one party could do that is trusted with every label: it adds noise once, with
the noise of one of our helpers (its multiplier is twice ours: it counts in ψ, for a record that is removed,
and we in 2ψ, for one that is replaced). Two helpers each add the whole noise, or one that colludes could
subtract its own: so ours has √2 times the noise of Opacus, and that is the price of trusting no single
party: any one honest helper is enough. Its multiplier follows from our accounting, which keeps a part of δ
aside, and bound and learning rate were chosen with our noise: tuned by itself, Opacus may do better."""


def _settings_told(rows: Sequence[Row]) -> str:
    told = []
    for name in _names(rows):
        row = tables.of(rows, name)[0]
        told.append(
            f"- {name}: {row.more['network']}, {row.number('rows'):,.0f} rows, batches of "
            f"{row.number('batch'):,.0f}, {row.number('steps'):,.0f} steps, gradient bound "
            f"{row.number('bound'):g} in L2, SGD with momentum {row.number('momentum'):g} and learning rate "
            f"{row.number('learning_rate'):g}"
        )
    chosen = (
        "Bound and learning rate were chosen once, at ε = 2, by runs in plain floats, on rows to train with "
        "that were kept aside for it; they are the same at every point of a dataset."
    )
    return "\n".join([*told, "", chosen])


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| data | batches | ε, ad server | ε, coalition | noise multiplier | masked | Opacus |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name in _names(rows):
        peers = {mean.x: mean for mean in tables.means(rows, name, OPACUS)}
        for series, batches in ((MASKED, "Poisson"), (PARTITIONED, "partition")):
            for mean in tables.means(rows, name, series):
                row = next(row for row in tables.of(rows, name, series) if row.x == mean.x)
                peer = _score(name, peers.get(mean.x)) if series == MASKED else ""
                costs = " | ".join(f"{row.number(each):.3g}" for each in _COSTS)
                lines.append(f"| {name} | {batches} | {costs} | {_score(name, mean)} | {peer} |")
        lines += [
            f"| {name} | Poisson | ∞ | ∞ | 0 | {_score(name, mean)} | |"
            for mean in tables.means(rows, name, QUIET)
        ]
    return "\n".join(lines)


_COSTS = ("adserver_epsilon", "coalition_epsilon", "noise")


def _score(name: str, mean: Mean | None) -> str:
    if mean is None:
        return ""
    digits = TASKS[name].digits
    bar = f" ± {mean.deviation:.{digits}f}" if mean.seeds > 1 else ""
    return f"{mean.y:.{digits}f}{bar}"


def _seen(rows: Sequence[Row]) -> str:
    """How far Opacus is above, over all ε."""
    told = []
    for name in _names(rows):
        ours = {mean.x: mean.y for mean in tables.means(rows, name, MASKED)}
        gaps = [mean.y - ours[mean.x] for mean in tables.means(rows, name, OPACUS) if mean.x in ours]
        if gaps:
            digits, three = TASKS[name].digits, (min(gaps), max(gaps), statistics.fmean(gaps))
            found = [f"{round(gap, digits) + 0.0:+.{digits}f}" for gap in three]  # No "-0.0".
            told.append(f"{found[0]} to {found[1]} on {name}, {found[2]} on average")
    return f"Opacus less masked, at the same ε against the ad server: {'; '.join(told)}." if told else ""


def _http(rows: Sequence[Row]) -> str:
    found = [row for name in _names(rows) for row in tables.of(rows, name, ON_HTTP)]
    if not found:
        return ""
    row, task = found[0], TASKS[found[0].dataset]
    same = row.number("differing_weights") == 0
    verdict = "every weight has the same bits" if same else f"{row.more['differing_weights']} weights differ"
    return (
        f"{row.dataset} at ε = {row.x:g}, {row.number('rows'):,.0f} rows, {row.number('steps'):,.0f} steps, "
        "was trained over HTTP too, through real processes, and once more in memory with the seeds that the "
        f"helpers had drawn. {task.unit}: {row.y:.{task.digits}f} and "
        f"{row.number('in_memory'):.{task.digits}f}; {verdict}, of {row.number('weights'):.0f}."
    )
