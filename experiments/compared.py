"""Ours beside the authors': points over seeds, their point at the same place, and how many are near.

Run by figures that have the authors' accuracies.
"""

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

    def judged(self, found: Iterable["Beside"]) -> list["Beside"]:
        """Those that should be."""
        return [each for each in found if each.theirs is not None and each.point.x >= self.least]


THREE_ROWS = 300 / 69 + 0.01
"""Three of WBCD's 69 test rows, in accuracy points: the authors' are rounded to hundredths."""


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

    def off(self) -> float:
        """How far apart they are."""
        assert self.theirs is not None, "only what both have is compared"
        return abs(self.point.y - self.theirs)


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
    judged = wanted.judged(found)
    if not judged:
        return ""
    near, farthest = sum(each.off() <= wanted.most for each in judged), max(judged, key=Beside.off)
    where = f" at log₁₀ ε ≥ {wanted.least:g}" if wanted.least > -_ANYWHERE else ""
    return (
        f"{near} of {len(judged)} points{where} are within {wanted.most:.1f} accuracy points of the "
        f"authors'; the farthest is {farthest.off():.1f} off ({farthest.named})."
    )


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
            near = _part(abs(run - (each.theirs or 0)) <= wanted.most for run in each.runs)
            alike = _part(abs(one - two) <= wanted.most for one, two in combinations(each.runs, 2))
            lines.append(f"| {each.named} | {each.theirs:.1f} | {each.point.y:.1f} | {near} | {alike} |")
    return "\n".join(lines) if lines[2:] else ""


def _part(which: Iterable[bool]) -> str:
    return f"{statistics.fmean(which):.0%}"


_ANYWHERE = 9.0
EVERYWHERE = -_ANYWHERE
"""As the least log ε: all points count."""
