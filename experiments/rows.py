"""Rows of a figure's CSV: named columns, one row a point and seed, the settings beside what was found."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_FIRST = ("dataset", "series", "x", "seed", "y")
_LAST = ("seconds", "key")


class Row(NamedTuple):
    """One point of one seed."""

    key: str
    """Of the job that made it."""
    dataset: str
    series: str
    x: float
    seed: int
    y: float
    seconds: float
    more: Mapping[str, str]
    """Settings, and what else was found."""

    def number(self, name: str) -> float:
        """A setting or finding that is a number."""
        return float(self.more[name])


class Mean(NamedTuple):
    """A point over its seeds."""

    x: float
    y: float
    deviation: float
    """The standard deviation over seeds; 0 with one."""
    seeds: int


class Median(NamedTuple):
    """A point over its seeds, where they differ wildly."""

    x: float
    y: float
    low: float
    """The lower quartile."""
    high: float
    seeds: int


def of(rows: Iterable[Row], dataset: str, series: str | None = None) -> list[Row]:
    """The rows of a dataset, or of one series of it."""
    return [row for row in rows if row.dataset == dataset and series in (None, row.series)]


def names(rows: Iterable[Row], dataset: str) -> list[str]:
    """The series of a dataset, in order."""
    return list(dict.fromkeys(row.series for row in rows if row.dataset == dataset))


def means(rows: Iterable[Row], dataset: str, series: str) -> list[Mean]:
    """A series, from left to right."""
    return [Mean(x, _mean(ys), _deviation(ys), len(ys)) for x, ys in _by_x(rows, dataset, series).items()]


def _by_x(rows: Iterable[Row], dataset: str, series: str) -> dict[float, list[float]]:
    found: dict[float, list[float]] = defaultdict(list)
    for row in of(rows, dataset, series):
        found[row.x].append(row.y)
    return dict(sorted(found.items()))


def medians(rows: Iterable[Row], dataset: str, series: str) -> list["Median"]:
    """A series where single runs are chance, from left to right."""
    return [
        Median(x, float(np.median(ys)), float(np.quantile(ys, 0.25)), float(np.quantile(ys, 0.75)), len(ys))
        for x, ys in _by_x(rows, dataset, series).items()
    ]


def text(value: object) -> str:
    """A value as a CSV holds it: floats with all their digits."""
    return repr(value) if isinstance(value, float) else str(value)


def write(path: Path, rows: Sequence[Row]) -> None:
    """All of them: whole or not at all, so that a kill leaves the file as it was."""
    more = list(dict.fromkeys(name for row in rows for name in row.more))
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*_FIRST, *more, *_LAST], restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            fixed = {name: text(getattr(row, name)) for name in (*_FIRST, *_LAST)}
            writer.writerow({**row.more, **fixed})
    part.replace(path)


def read(path: Path) -> list[Row]:
    """What an earlier run has left; nothing, where there was none or the file is no figure's."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        return [_row(line) for line in lines] if set(_LAST) <= {*(lines.fieldnames or ())} else []


def _row(line: Mapping[str, str]) -> Row:
    more = {name: value for name, value in line.items() if name not in (*_FIRST, *_LAST) and value != ""}
    return Row(
        line["key"],
        line["dataset"],
        line["series"],
        float(line["x"]),
        int(line["seed"]),
        float(line["y"]),
        float(line["seconds"]),
        more,
    )


def _mean(ys: Sequence[float]) -> float:
    return math.fsum(ys) / len(ys)


def _deviation(ys: Sequence[float]) -> float:
    if len(ys) < 2:
        return 0.0
    mean = _mean(ys)
    return math.sqrt(math.fsum((y - mean) ** 2 for y in ys) / (len(ys) - 1))
