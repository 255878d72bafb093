"""The authors' points, as read off their plots: facts, to stand beside ours.

From slides 23 to 25 of the talk that the authors gave to the W3C's private advertising group on 2022-02-09.
A fully visible marker is read within about 0.3 accuracy points, a partly hidden one within 0.6. That "log"
is of base 10 is an assumption that fits the even spacing.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = "slides 23 to 25 of the authors' talk to the W3C's private advertising group, 2022-02-09"
_FILE = Path(__file__).with_name("authors.csv")


class Point(NamedTuple):
    """One marker of a plot."""

    figure: str
    dataset: str
    series: str
    x: float
    y: float
    quality: str


def points(figure: str, dataset: str, series: str = "") -> list[Point]:
    """One series of a plot, from left to right."""
    found = [p for p in _all() if (p.figure, p.dataset, p.series) == (figure, dataset, series)]
    return sorted(found, key=lambda point: point.x)


def series(figure: str, dataset: str) -> list[str]:
    """The names of a plot's series, in the authors' order."""
    return list(dict.fromkeys(p.series for p in _all() if (p.figure, p.dataset) == (figure, dataset)))


@cache
def _all() -> tuple[Point, ...]:
    with _FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Point(
                row["figure"], row["dataset"], row["series"], float(row["x"]), float(row["y"]), row["quality"]
            )
            for row in csv.DictReader(file)
        )
