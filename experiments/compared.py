"""Ours beside the authors': points over seeds, their point at the same place, and how many are near.

Run by figures that have the authors' accuracies.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from experiments import authors
from experiments import rows as tables
from experiments.rows import Mean, Median, Row

Point = Mean | Median
_SAME = 1e-3
"""Two log ε that are nearer are one."""


class Near(NamedTuple):
    """Where ours should be the authors'."""

    least: float
    """From which log ε on."""
    most: float
    """Within how many accuracy points."""
    told: str = ""
    """What that is, where it is a number of rows."""

    def judged(self, found: Iterable["Beside"]) -> list["Beside"]:
        """Those that should be."""
        return [each for each in found if each.theirs is not None and each.point.x >= self.least]


THREE_ROWS = Near(-math.inf, 300 / 69 + 0.01, " (three of 69 rows)")
"""Everywhere, of WBCD's test rows; the authors' accuracies are rounded to hundredths."""


def points(rows: Sequence[Row], dataset: str, series: str) -> Sequence[Point]:
    """Means; for WBCD medians: of 69 test rows and much noise, single runs are chance."""
    found = tables.medians if dataset == "WBCD" else tables.means
    return found(rows, dataset, series)


class Beside(NamedTuple):
    """A point of ours, the runs that it is of, and the authors' there, if they have one."""

    point: Point
    runs: Sequence[float]
    theirs: float | None
    series: str = ""
    """As it is told, where a dataset has several."""

    @property
    def named(self) -> str:
        """Where it is."""
        return f"{self.series}{', ' if self.series else ''}log₁₀ ε = {self.point.x:.2f}"

    def off(self, run: float | None = None) -> float:
        """How far apart they are; or one run of ours and theirs."""
        assert self.theirs is not None, "only what both have is compared"
        return abs((self.point.y if run is None else run) - self.theirs)


class Theirs(NamedTuple):
    """A series of the authors', and how it is told."""

    figure: str
    series: str = ""
    told: str = ""


def beside(rows: Sequence[Row], dataset: str, series: str, their: Theirs) -> list[Beside]:
    """All points of a series of ours, with the authors'."""
    runs = tables.of(rows, dataset, series)
    return [
        Beside(
            point,
            [row.y for row in runs if row.x == point.x],
            theirs(their.figure, dataset, their.series, point.x),
            their.told,
        )
        for point in points(rows, dataset, series)
    ]


def theirs(figure: str, dataset: str, series: str, x: float) -> float | None:
    """The authors' accuracy there, if they have a point."""
    found = [point.y for point in authors.points(figure, dataset, series) if abs(point.x - x) < _SAME]
    return found[0] if found else None


def cell(point: Point) -> str:
    """A number of a table, with its deviation where it is a mean."""
    spread = f" ± {point.deviation:.1f}" if isinstance(point, Mean) and point.seeds > 1 else ""
    return f"{point.y:.1f}{spread}"


def counted(wanted: Near, found: Iterable[Beside]) -> str:
    """How many are as near as they should be, and the farthest."""
    both = [each for each in found if each.theirs is not None]
    judged = wanted.judged(both)
    if not judged:
        return ""
    near = sum(each.off() <= wanted.most for each in judged)
    where = f" at log₁₀ ε ≥ {wanted.least:g}" if wanted.least > -math.inf else ""
    told = (
        f"{near} of {len(judged)} points{where} are within {wanted.most:.1f} accuracy points{wanted.told} of "
        f"the authors'; the farthest is {_farthest(judged)}."
    )
    others = [each for each in both if each.point.x < wanted.least]
    return told + (f" To the left of that the farthest is {_farthest(others)}." if others else "")


def _farthest(found: Sequence[Beside]) -> str:
    each = max(found, key=Beside.off)
    return f"{each.off():.1f} off ({each.named})"


def missed(wanted: Near, found: Iterable[Beside]) -> str:
    """A table of those that are not near: how near runs are there that differ in their seeds alone.

    Nothing, where all are near.
    """
    lines = [
        "| not near | the authors' | our median | our runs near theirs | pairs of our runs near each other |",
        "|---|--:|--:|--:|--:|",
    ]
    for each in wanted.judged(found):
        if each.off() > wanted.most:
            near = _part(each.off(run) <= wanted.most for run in each.runs)
            alike = _part(abs(one - two) <= wanted.most for one, two in combinations(each.runs, 2))
            lines.append(f"| {each.named} | {each.theirs:.1f} | {each.point.y:.1f} | {near} | {alike} |")
    return "\n".join(lines) if lines[2:] else ""


def _part(which: Iterable[bool]) -> str:
    return f"{100 * statistics.fmean(which):.0f} %"
