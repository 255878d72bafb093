"""Logarithmic axes with numbers as people write them, and marks where points are. Run by figures."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

_PLAIN = FuncFormatter(lambda number, _: f"{number:g}")


def across(axes: Axes, values: Iterable[float]) -> None:
    """From left to right, with a mark at every one of these."""
    marks = sorted(set(values))
    axes.set_xscale("log")
    axes.set_xticks(marks, [f"{value:g}" for value in marks])
    axes.minorticks_off()


def up(axes: Axes, values: Iterable[float] = ()) -> None:
    """From bottom to top, with marks at these, or at powers of ten."""
    axes.set_yscale("log")
    if marks := sorted(values):
        axes.set_yticks(marks)
    axes.yaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_minor_formatter(NullFormatter())
