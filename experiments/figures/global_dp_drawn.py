"""The plots of `global_dp`."""

from collections.abc import Sequence
from pathlib import Path

from experiments import authors, compared, drawing, log_axes
from experiments import rows as tables
from experiments.compared import Point
from experiments.figures.global_dp_series import AUTHORS, TRUE, accounted, as_run, bounds, coalition, named
from experiments.rows import Row
from experiments.settings import NETWORKS

_ACCURACY = "test accuracy (%)"
_MARKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


def draw(rows: Sequence[Row], out: Path) -> list[str]:
    """One plot as the authors ran it, with their points; one with the guarantee stated correctly."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    _draw_as_run(rows, here, out / "global_dp.svg")
    _draw_accounted(rows, here, out / "global_dp_accounted.svg")
    return ["global_dp.svg", "global_dp_accounted.svg"]


def _draw_as_run(rows: Sequence[Row], here: Sequence[str], path: Path) -> None:
    figure = drawing.panels(
        [f"{name}, as the authors ran it" for name in here],
        ["the authors' log₁₀ ε (not the training's ε: see text)"] * len(here),
        [_ACCURACY] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        for place, bound in enumerate(bounds(rows, name)):
            drawing.authors(axes, authors.points(AUTHORS, name, f"bound={bound:g}"), place)
            found = [each.point for each in as_run(rows, name, bound)]
            drawing.ours(axes, drawing.aside(found, _side(name, place)), place, f"ψ = {bound:g}")
        axes.legend(handles=[*axes.get_legend_handles_labels()[0], drawing.AUTHORS], loc="lower right")
    drawing.save(figure, path)


def _draw_accounted(rows: Sequence[Row], here: Sequence[str], path: Path) -> None:
    figure = drawing.panels(
        [f"{name}, the whole training accounted" for name in here],
        ["total ε of the training, at δ = 10⁻⁵"] * len(here),
        [_ACCURACY] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        places = {bound: place for place, bound in enumerate(bounds(rows, name))}
        for bound in bounds(rows, name, TRUE):
            place, alone = places[bound], compared.points(rows, name, named(TRUE, bound))
            drawing.ours(axes, drawing.aside(alone, _side(name, place), log=True), place, f"ψ = {bound:g}")
            drawing.faint(axes, _against_helpers(rows, name, named(TRUE, bound), alone), place)
        log_axes.across(axes, _marks(rows, name))
        axes.set_ylim(top=100)
        axes.legend(handles=[*axes.get_legend_handles_labels()[0], drawing.FAINT], loc="best")
    drawing.save(figure, path)


def _side(name: str, place: int) -> float:
    """WBCD's bars reach far."""
    return 0.03 * (place - 1) if name == "WBCD" else 0.0


def _marks(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers that reach from the least ε to the largest."""
    costs = accounted(rows, name)
    low, high = min((row.x for row in costs), default=1.0), max(map(coalition, costs), default=10.0)
    return [mark for mark in _MARKS if low / 2 <= mark <= 2 * high]


def _against_helpers(rows: Sequence[Row], name: str, series: str, alone: Sequence[Point]) -> list[Point]:
    """The same runs where they stand for the ad server with all helpers but one."""
    dearer = {row.x: coalition(row) for row in tables.of(rows, name, series)}
    return [point._replace(x=dearer[point.x]) for point in alone]
