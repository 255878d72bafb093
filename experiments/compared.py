"""Ours beside the authors': points over seeds, their point at the same place, and how many are near.

Run by figures that have the authors' accuracies.
"""

from collections.abc import Iterable, Sequence
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


THREE_ROWS = 300 / 69 + 0.01
"""Three of WBCD's 69 test rows, in accuracy points: the authors' are rounded to hundredths."""


def points(rows: Sequence[Row], dataset: str, series: str) -> Sequence[Point]:
    """Means; for WBCD medians: of 69 test rows and much noise, single runs are chance."""
    found = tables.medians if dataset == "WBCD" else tables.means
    return found(rows, dataset, series)


def theirs(figure: str, dataset: str, series: str, x: float) -> float | None:
    """The authors' accuracy there, if they have a point."""
    found = [point.y for point in authors.points(figure, dataset, series) if abs(point.x - x) < _SAME]
    return found[0] if found else None


def cell(point: Point) -> str:
    """A number of a table, with its deviation where it is a mean."""
    spread = f" ± {point.deviation:.1f}" if isinstance(point, Mean) and point.seeds > 1 else ""
    return f"{point.y:.1f}{spread}"


def counted(wanted: Near, found: Iterable[tuple[float, float, float | None, str]]) -> str:
    """How many are as near as they should be, and the farthest: of log ε, ours, theirs and a name each."""
    off = [
        (abs(own - other), place, x)
        for x, own, other, place in found
        if x >= wanted.least and other is not None
    ]
    if not off:
        return ""
    near, (farthest, place, x) = sum(distance <= wanted.most for distance, *_ in off), max(off)
    where = f" at log₁₀ ε ≥ {wanted.least:g}" if wanted.least > -_ANYWHERE else ""
    return (
        f"{near} of {len(off)} points{where} are within {wanted.most:.1f} accuracy points of the authors'; "
        f"the farthest is {farthest:.1f} off ({place}log₁₀ ε = {x:.2f})."
    )


_ANYWHERE = 9.0
EVERYWHERE = -_ANYWHERE
"""As the least log ε: all points count."""
