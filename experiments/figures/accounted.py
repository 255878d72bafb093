"""Accuracy against the whole (ε, δ) of a training, as it is accounted, for both adversaries; and Opacus.

Every run of ours has two figures: against the ad server alone, which does not know who is in a batch, and
against a coalition of it with all helpers but one, which does. Neighbours differ in one record's label, real
or fake: that is replacement, so Opacus is given twice our multiplier of the sensitivity 2ψ.
"""

import math
import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from experiments import drawing, log_axes
from experiments import rows as tables
from experiments.figures.accounted_run import (
    DELTA,
    MASKED,
    ON_HTTP,
    OPACUS,
    PARTITIONED,
    QUIET,
    TASKS,
    beside,
    masked,
    over_http,
    quiet,
)
from experiments.jobs import Job
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
    weight: float
    """Seconds a run, about."""


_BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0)


def _grids(size: Size) -> dict[str, Grid]:
    look, known = (2.0, 8.0), (2.0, 8.0, 32.0)
    some = size.pick(look, _BUDGETS, _BUDGETS)
    visits = Grid(9247, 4624, 200, some, some, 5)
    return {
        "MNIST": size.pick(
            Grid(6000, 600, 40, look, (8.0,), 8),
            Grid(50_000, 2000, 250, _BUDGETS, known, 60),
            Grid(50_000, 2000, 1000, (0.25, *_BUDGETS, 16.0), known, 240),
        ),
        "online shoppers": visits,
    }


def jobs(size: Size) -> Sequence[Job]:
    """Masked at every ε, drawn both ways; Opacus, where it is installed; without noise; and over HTTP."""
    found = []
    for name, grid in _grids(size).items():
        series = [(MASKED, grid.epsilons, masked), (PARTITIONED, grid.partitioned, masked)]
        if find_spec("opacus") is not None:
            series.append((OPACUS, grid.epsilons, beside))
        found += [
            Job(name, label, epsilon, seed, run, _settings(name, grid, epsilon), grid.weight)
            for label, epsilons, run in series
            for epsilon in epsilons
            for seed in size.seeds
        ]
        found.append(Job(name, QUIET, 0.0, 0, quiet, _settings(name, grid, 0.0), grid.weight))
    name, grid = "online shoppers", _grids(size)["online shoppers"]
    return [*found, Job(name, ON_HTTP, 2.0, 0, over_http, _settings(name, grid, 2.0), 60, True)]


def _settings(name: str, grid: Grid, epsilon: float) -> dict[str, float | int]:
    task = TASKS[name]
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "rows": grid.rows,
        "batch": grid.batch,
        "steps": grid.steps,
        "bound": task.bound,
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
            if points := _at(rows, name, series, column):
                drawing.ours(axes, points, place, label)
        for row in tables.of(rows, name, QUIET):
            axes.axhline(row.y, color="#555555", lw=1, ls=(0, (1, 1.5)), label=QUIET)
        log_axes.across(axes, _marks(rows, name))
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    drawing.save(figure, out / "accounted.svg")
    return ["accounted.svg"]


def _at(rows: Sequence[Row], name: str, series: str, column: str) -> list[Mean]:
    """A series' means, each at what it costs by that column."""
    costs = {row.x: row.number(column) for row in tables.of(rows, name, series)}
    return [mean._replace(x=costs[mean.x]) for mean in tables.means(rows, name, series)]


def _marks(rows: Sequence[Row], name: str) -> list[float]:
    """Powers of two, from the least ε to the largest."""
    found = [mean.x for series, column, _ in _LINES for mean in _at(rows, name, series, column)]
    low, high = math.floor(math.log2(min(found))), math.ceil(math.log2(max(found)))
    return [2.0**power for power in range(low, high + 1)]


def _names(rows: Sequence[Row]) -> list[str]:
    return [name for name in TASKS if tables.of(rows, name)]


def text(rows: Sequence[Row]) -> str:
    """What was run, what each point costs, and how far ours is from Opacus."""
    return f"""A training is charged as a whole before its first step: all steps compose. Against the ad
server alone, who is in a batch is not known, and Poisson sampling hides it; against a coalition of the ad
server with all helpers but one, or a curious helper, batches are known, and a record costs as many releases
as batches that it is in. Where the coalition is what one fears, a fresh partition every epoch is better: a
record is in exactly one batch of each, nothing is hidden from anybody, and both figures are the same.

{_settings_told(rows)}

Opacus is what one party could do that is trusted with every label: it adds noise once, with the multiplier
that each of our helpers uses (doubled, since its guarantee is for a record that is removed, ours for one that
is replaced). Two helpers each add the whole noise, or one that colludes could subtract its own: so ours has
√2 times the noise of Opacus, and that is the price of trusting nobody.

{_table(rows)}

{_seen(rows)} {_http(rows)}
"""


def _settings_told(rows: Sequence[Row]) -> str:
    told = []
    for name in _names(rows):
        row, task = tables.of(rows, name)[0], TASKS[name]
        told.append(
            f"- {name}: {'-'.join(map(str, task.sizes))}, {row.number('rows'):,.0f} rows, batches of "
            f"{row.number('batch'):,.0f}, {row.number('steps'):,.0f} steps, gradient bound {task.bound:g} in "
            f"L2, SGD with momentum {task.momentum:g} and learning rate {task.rate:g}"
        )
    chosen = (
        "Bound and learning rate were chosen once, at ε = 2, by runs in plain floats, on rows to train with "
        "that were kept aside for it; they are the same at every point, Opacus's too."
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
            f"| {name} | Poisson | ∞ | ∞ | 0 | {_score(name, Mean(0, row.y, 0, 1))} | |"
            for row in tables.of(rows, name, QUIET)
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
            found = [
                f"{gap:+.{TASKS[name].digits}f}" for gap in (min(gaps), max(gaps), statistics.fmean(gaps))
            ]
            told.append(f"{found[0]} to {found[1]} on {name}, {found[2]} on average")
    return f"Opacus less masked, at the same ε against the ad server: {'; '.join(told)}." if told else ""


def _http(rows: Sequence[Row]) -> str:
    found = [row for name in _names(rows) for row in tables.of(rows, name, ON_HTTP)]
    if not found:
        return ""
    row = found[0]
    same = row.number("differing_weights") == 0
    verdict = "every weight has the same bits" if same else f"{row.more['differing_weights']} weights differ"
    return (
        f"The {row.dataset} point at ε = {row.x:g} was trained over HTTP too, through real processes, and "
        f"once more in memory with the seeds that the helpers had drawn: {row.y:.2f} % and "
        f"{row.number('in_memory'):.2f} % of the test rows are told right; {verdict}, of "
        f"{row.number('weights'):.0f}."
    )
