"""What one private release gives, against ε: all after it is free, and the ε is the same for everybody.

Both forms of it, a linear model from moments and a student of labels of cells; beside them private gradients
at the ε of both adversaries, Opacus, labels that browsers randomise, and labels in the clear.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.artist import Artist

from experiments import drawing, log_axes
from experiments import rows as tables
from experiments.figures import accounted
from experiments.figures.accounted_run import MASKED, OPACUS, PARTITIONED, TASKS
from experiments.figures.one_release_checked import (
    CELLS,
    CHOSEN,
    CLEAR,
    HELD_OUT,
    LEARNT,
    LINEAR,
    RANDOMISED,
    REFINED,
    STUDENT,
    UNFITTED,
)
from experiments.figures.one_release_choices import OF_CELLS
from experiments.figures.one_release_run import (
    MNIST,
    SHOPPERS,
    cells,
    chosen,
    chosen_alone,
    clear,
    held_out,
    held_out_alone,
    learnt,
    learnt_alone,
    linear,
    over_http,
    randomised,
    refined,
    unfitted,
)
from experiments.figures.one_release_told import ON_HTTP, text
from experiments.jobs import Job
from experiments.rows import Row
from experiments.size import Size

__all__ = ["NAME", "TITLE", "draw", "jobs", "text"]
NAME = "one_release"
TITLE = "One release, then a model for nothing"
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
IMAGES = (0.1, 0.25, 0.5, 1.0, 2.0)
IMAGES_LINEAR, IMAGES_LEARNT, IMAGES_RANDOMISED = (0.25, 1.0, 2.0), (0.25,), (1.0, 4.0)
TABLE_LEARNT, REFINING, CHECKED = (0.5, 1.0), (0.25, 1.0), (0.5, 1.0, 2.0)
SEEDS = {MNIST: 5, SHOPPERS: 8}
_SERVED = {MNIST: (CELLS, 0.25, 120), SHOPPERS: (LINEAR, 1.0, 30)}
"""What is asked over HTTP too: the series, its ε, and seconds."""


def jobs(size: Size) -> Sequence[Job]:
    """Every ε and seed, which draws the split and the noise; labels in the clear; gradients; over HTTP."""
    asked = [
        (MNIST, LINEAR, IMAGES_LINEAR, linear, 40),
        (MNIST, CELLS, IMAGES, cells, 25),
        (MNIST, LEARNT, IMAGES_LEARNT, learnt_alone, 60),
        (MNIST, REFINED, REFINING, refined, 50),
        (MNIST, RANDOMISED, IMAGES_RANDOMISED, randomised, 12),
        (MNIST, STUDENT, (0.0,), clear, 12),
        (SHOPPERS, LINEAR, EPSILONS, linear, 5),
        (SHOPPERS, CLEAR, (0.0,), linear, 5),
        (SHOPPERS, CELLS, EPSILONS, cells, 2),
        (SHOPPERS, LEARNT, TABLE_LEARNT, learnt_alone, 10),
        (SHOPPERS, REFINED, REFINING, refined, 4),
        (SHOPPERS, RANDOMISED, EPSILONS, randomised, 1),
        (SHOPPERS, STUDENT, (0.0,), clear, 1),
    ]
    found = [
        Job(dataset, series, epsilon, seed, run, {"epsilon": epsilon}, weight)
        for dataset, series, epsilons, run, weight in asked
        for epsilon in size.pick(epsilons[-1:], epsilons, epsilons)
        for seed in range(1 if size is Size.QUICK else SEEDS[dataset])
    ]
    found = [
        replace(job, together=learnt, group=f"{LEARNT} {job.dataset} {job.seed}")
        if job.series == LEARNT
        else job
        for job in found
    ]
    served = [
        Job(dataset, ON_HTTP, epsilon, 0, over_http, {"epsilon": epsilon, "of": series}, weight, alone=True)
        for dataset, (series, epsilon, weight) in _SERVED.items()
        if size is not Size.QUICK or dataset == SHOPPERS
    ]
    return [*found, *([] if size is Size.QUICK else _checks()), *served, *_gradients(size)]


def _checks() -> list[Job]:
    """What hangs on constants that were found with these data in hand: on other rows, and with other ones."""
    splits = range(1, 1 + SEEDS[SHOPPERS])
    found = [
        Job(SHOPPERS, UNFITTED, epsilon, seed, unfitted, {"epsilon": epsilon}, 5)
        for epsilon in CHECKED
        for seed in splits
    ]
    found += [
        Job(SHOPPERS, CHOSEN, epsilon, seed, chosen_alone, {"epsilon": epsilon}, 20, together=chosen,
            group=f"{CHOSEN} {seed}")
        for epsilon in CHECKED
        for seed in splits
    ]  # fmt: skip
    found += [
        Job(MNIST, HELD_OUT, epsilon, seed, held_out_alone, {"epsilon": epsilon, "constants": name}, 12,
            together=held_out, group=f"{HELD_OUT} {epsilon} {seed}")
        for epsilon in (0.25, 1.0)
        for seed in range(1)
        for name in OF_CELLS
    ]  # fmt: skip
    return found


def _gradients(size: Size) -> list[Job]:
    """The jobs of the figure of accounting, as they are there: whoever has its rows need not run them."""
    return [job for job in accounted.jobs(size) if job.series in (MASKED, PARTITIONED, OPACUS)]


_LINES = (
    (LINEAR, "linear model, one release"),
    (CELLS, "student of labels of cells, one release"),
    (LEARNT, "the same in features learnt without labels"),
    (MASKED, "private gradients, against the ad server alone"),
    (PARTITIONED, "private gradients, partitioned, against either"),
    (OPACUS, "Opacus, one trusted party"),
    (RANDOMISED, "labels randomised in browsers"),
)
_KNOWN = "the same gradients, against the ad server\nwith all helpers but one"
_FROM = {MNIST: 70.0, SHOPPERS: 0.75}
"""What is worse is guessing, and is in the table."""


def draw(rows: Sequence[Row], out: Path) -> Sequence[str]:
    """A panel a dataset: scores against ε, for one release against everybody."""
    names = [name for name in SEEDS if tables.of(rows, name)]
    across = ["total ε, δ = 10⁻⁵ (cells, randomised: δ = 0)"] * len(names)
    figure = drawing.panels(names, across, [TASKS[name].unit for name in names], 5.0)
    for axes, name in zip(figure.axes, names, strict=True):
        marks = []
        for place, (series, label) in enumerate(_LINES):
            if points := tables.means(rows, name, series):
                drawing.ours(axes, points, place, label)
                marks += [point.x for point in points]
            if series == MASKED and points:
                coalition = accounted.at(rows, name, MASKED, "coalition_epsilon")
                drawing.faint(axes, coalition, place)
                marks += [point.x for point in coalition]
        for mean in tables.means(rows, name, STUDENT):
            axes.axhline(mean.y, color="#555555", lw=1, ls=(0, (1, 1.5)), label="the student of clear labels")
        high = math.ceil(math.log2(max(marks)))
        shown = [0.1, 0.25, *(2.0**power for power in range(-1, high + 1))]
        log_axes.across(axes, [each for each in shown if each >= min(marks)])
        axes.set_ylim(bottom=_FROM[name])
    named = dict[str, Artist]()
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    order = [label for _, label in _LINES if label in named]
    order += [label for label in named if label not in order]
    legend = [*(named[label] for label in order), drawing.FAINT]
    figure.legend(legend, [*order, _KNOWN], loc="outside lower center", ncols=3)
    drawing.save(figure, out / f"{NAME}.svg")
    return [f"{NAME}.svg"]
