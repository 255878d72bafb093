"""What one private release gives, against ε: all after it is free, and the ε is the same for everybody.

A linear model from moments and, beside it, private gradients with whole batches known to all (a partition),
for which both adversaries' ε are the same too.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments import drawing, log_axes
from experiments import rows as tables
from experiments.figures import accounted
from experiments.figures.accounted_run import PARTITIONED
from experiments.figures.one_release_run import linear
from experiments.jobs import Job
from experiments.rows import Row
from experiments.size import Size

NAME = "one_release"
TITLE = "One release, then a model for nothing"
SHOPPERS = "online shoppers"
LINEAR, CLEAR = "linear model, one release", "linear model, clear labels"
GRADIENTS = PARTITIONED
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SEEDS = 8


def jobs(size: Size) -> Sequence[Job]:
    """Every ε and seed, which draws the split and the noise; the same rows without noise; gradients."""
    epsilons, seeds = size.pick((1.0,), EPSILONS, EPSILONS), range(size.pick(1, SEEDS, SEEDS))
    found = [
        Job(SHOPPERS, LINEAR, epsilon, seed, linear, {"epsilon": epsilon}, 5)
        for epsilon in epsilons
        for seed in seeds
    ]
    found += [Job(SHOPPERS, CLEAR, 0.0, seed, linear, {"epsilon": 0.0}, 5) for seed in seeds]
    return [*found, *_gradients(size)]


def _gradients(size: Size) -> list[Job]:
    """The jobs of the figure before, as they are there."""
    return [job for job in accounted.jobs(size) if (job.dataset, job.series) == (SHOPPERS, GRADIENTS)]


_LINES = ((LINEAR, "linear model from one release"), (GRADIENTS, "private gradients, partitioned"))


def draw(rows: Sequence[Row], out: Path) -> Sequence[str]:
    """AUC against the ε that everybody faces."""
    figure = drawing.panels([SHOPPERS], ["total ε, δ = 10⁻⁵, against everybody"], ["AUC on test rows"])
    (axes,) = figure.axes
    marks = []
    for place, (series, label) in enumerate(_LINES):
        if points := tables.means(rows, SHOPPERS, series):
            drawing.ours(axes, points, place, label)
            marks += [point.x for point in points]
    for mean in tables.means(rows, SHOPPERS, CLEAR):
        axes.axhline(mean.y, color="#555555", lw=1, ls=(0, (1, 1.5)), label=CLEAR)
    low, high = math.floor(math.log2(min(marks))), math.ceil(math.log2(max(marks)))
    log_axes.across(axes, [2.0**power for power in range(low, high + 1)])
    axes.legend(loc="lower right")
    drawing.save(figure, out / f"{NAME}.svg")
    return [f"{NAME}.svg"]


def text(rows: Sequence[Row]) -> str:
    """What was run and chosen, and the table."""
    return "\n\n".join((_CHOSEN, _table(rows)))


_CHOSEN = """A logistic regression from one release of Σ φ(x) y (`maskedlark.fitting.LogisticRegression`, all
defaults), in memory by the package's own code: browsers' masks, two helpers with their own noise, the ad
server's client; the document declares `moments` alone, with Gaussian noise, and one helper's noise is
accounted. Every seed draws its own split of the table (three quarters to fit, a quarter to test) and its own
noise. The encoder is fitted to the rows to fit with. Nothing is chosen by a label: map, clip and their
competitors are compared by what a release would explain of an assumed truth, before anything is asked; the
ridge follows from the release itself, by empirical Bayes. How many steps and leaves a map has, and the ridge
of its whitening, are constants of the package; they were chosen while looking at the first split (seed 0)."""


def _table(rows: Sequence[Row]) -> str:
    clear = {row.seed: row.number("log_loss") for row in tables.of(rows, SHOPPERS, CLEAR)}
    gradients = {mean.x: f"{mean.y:.3f}" for mean in tables.means(rows, SHOPPERS, GRADIENTS)}
    lines = [
        "| ε | AUC, one release | log-loss | over clear | AUC, gradients |",
        "|--:|--:|--:|--:|--:|",
    ]
    for series in (LINEAR, CLEAR):
        for mean in tables.means(rows, SHOPPERS, series):
            own = [row for row in tables.of(rows, SHOPPERS, series) if row.x == mean.x]
            loss = fmean(row.number("log_loss") for row in own)
            over = [row.number("log_loss") / clear[row.seed] - 1 for row in own if row.seed in clear]
            worse = f"{100 * fmean(over):+.1f} %" if over and series == LINEAR else ""
            epsilon = f"{mean.x:g}" if series == LINEAR else "clear"
            score = f"{mean.y:.3f} ± {mean.deviation:.3f}"
            lines.append(f"| {epsilon} | {score} | {loss:.3f} | {worse} | {gradients.get(mean.x, '')} |")
    return "\n".join(lines)
