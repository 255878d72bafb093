"""One style for all plots: colours that the colour-blind tell apart, each with its own marker and line.

Ours are filled and solid, the authors' are hollow and dotted. SVG, with text as text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.authors import Point
from experiments.rows import Mean, Median

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe's and Ito's, the pale yellow left out: it hardly shows on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-", (0, (6, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)), "-", (0, (6, 2)), (0, (6, 2, 1, 2)),
)  # fmt: skip
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # Text stays text: it can be searched, and read aloud.
    "svg.hashsalt": "maskedlark",  # The same rows make the same file.
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
AUTHORS = Line2D(
    [], [], color="#555555", marker="o", markerfacecolor="none", linestyle=":", label="the authors'"
)
FAINT = Line2D(
    [], [], color="#555555", marker="o", linestyle="--", alpha=0.45,
    label="the same runs, against the ad server\nwith all helpers but one",
)  # fmt: skip
"""For legends: what hollow and faint markers are."""


def panels(titles: Sequence[str], across: Sequence[str], up: Sequence[str], height: float = 4.2) -> Figure:
    """Axes side by side, named: a title, what goes across and what goes up, with units, for each."""
    mpl.rcParams.update(_STYLE)
    figure = Figure(figsize=(5.4 * len(titles), height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(1, len(titles), squeeze=False)[0]
    for own, title, x, y in zip(axes, titles, across, up, strict=True):
        own.set_title(title, loc="left", fontsize=11)
        own.set_xlabel(x)
        own.set_ylabel(y)
    return figure


def ours(axes: Axes, means: Sequence[Mean | Median], place: int, label: str | None = None) -> None:
    """One series of ours, in the colour, marker and line of its place; bars over seeds."""
    drawn = any(mean.seeds > 1 for mean in means)
    axes.errorbar(
        [mean.x for mean in means],
        [mean.y for mean in means],
        yerr=[[reach[end] for reach in map(_reach, means)] for end in (0, 1)] if drawn else None,
        color=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        linestyle=DASHES[place % len(DASHES)],
        markersize=5,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=2.5,
        label=label,
        zorder=3,
    )


def aside(means: Sequence[Mean | Median], by: float, log: bool = False) -> list[Mean | Median]:
    """A little to the side, where bars that reach far would hide each other: by so much, or such a part."""
    return [mean._replace(x=mean.x * (1 + by) if log else mean.x + by) for mean in means]


def _reach(mean: Mean | Median) -> tuple[float, float]:
    """How far the bar goes down and up."""
    if isinstance(mean, Median):
        return mean.y - mean.low, mean.high - mean.y
    return mean.deviation, mean.deviation


def authors(axes: Axes, points: Sequence[Point], place: int, label: str | None = None) -> None:
    """The authors' series that belongs to that place: the same colour, hollow."""
    axes.plot(
        [point.x for point in points],
        [point.y for point in points],
        color=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        markerfacecolor="none",
        markersize=6,
        linestyle=":",
        linewidth=0.9,
        label=label,
        zorder=2,
    )


def faint(axes: Axes, means: Sequence[Mean | Median], place: int) -> None:
    """The same series of ours at other places, behind it."""
    axes.plot(
        [mean.x for mean in means],
        [mean.y for mean in means],
        color=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        markersize=4,
        linestyle="--",
        linewidth=0.9,
        alpha=0.45,
        zorder=2,
    )


def save(figure: Figure, path: Path) -> None:
    """As SVG, the same bytes for the same figure."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "maskedlark experiments"})
