"""The plot and the words of `local_dp`."""

import math
from collections.abc import Sequence
from pathlib import Path

from experiments import authors, drawing
from experiments import rows as tables
from experiments.data.wbcd import DEVIATION
from experiments.rows import Mean, Median, Row
from experiments.settings import MNIST_LOCAL, MNIST_SLOW, NETWORKS, WBCD, WBCD_LOCAL

AUTHORS = "local_dp_accuracy"
AS_RUN, OURS, HTTP = "as run, in floats", "ours, in bytes", "ours over HTTP, labels too"
_NEAR = {"MNIST": (0.0, 3.0), "WBCD": (-9.0, 300 / 69)}
"""From which log ε on, and within how many accuracy points, ours should be the authors'."""
Point = Mean | Median


def draw(rows: Sequence[Row], out: Path) -> list[str]:
    """A panel a dataset: the authors' points, their way run again, and ours."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    figure = drawing.panels(
        [f"{name}, noise on features alone" for name in here],
        ["the authors' log₁₀ ε (protects one feature, no label)"] * len(here),
        ["test accuracy (%)"] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        drawing.authors(axes, authors.points(AUTHORS, name), 0, "the authors'")
        drawing.ours(axes, _points(rows, name, AS_RUN), 0, "as they ran it, again (plain floats)")
        drawing.ours(axes, _points(rows, name, OURS), 1, "ours (rounded, clipped to a byte)")
        axes.legend(loc="lower right")
    drawing.save(figure, out / "local_dp.svg")
    return ["local_dp.svg"]


def _points(rows: Sequence[Row], name: str, series: str) -> Sequence[Point]:
    return tables.means(rows, name, series) if name == "MNIST" else tables.medians(rows, name, series)


def text(rows: Sequence[Row]) -> str:
    """What the page says."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    parts = [_ABOUT, *(part for name in here for part in (_TRAININGS[name], _compared(rows, name)))]
    return "\n\n".join([*parts, *(_over_http(row) for row in rows if row.series == HTTP)])


_ABOUT = """Laplace noise on every feature in the browser, drawn once a record. Gradients are clipped, and
nothing is added to them; the rows to test with are clean. **What it protects:** one feature of one record.
All features of a record together have d times its ε, by composition: the second column, for changes of any
size. It protects no label at all: labels reach the sum as they are, and an ad server that crafts weights
reads them from it. As the authors ran it, a feature with noise can be any number, which no byte holds:
that series is plain floats. Ours rounds and clips to a byte (`core/local_dp.py`), which costs no ε."""
_TRAININGS = {
    "MNIST": f"""MNIST, pixels in [0, 1]: the caption says "variance 1/ε", the text Laplace(1/ε); the
points fit a standard deviation of 1/ε, so a scale of 1/(√2 ε). As they ran it: {MNIST_SLOW}. Ours, by the
exact engine: batch {MNIST_LOCAL.batch}, learning rate {MNIST_LOCAL.rate:g}, {MNIST_LOCAL.epochs} epochs.
Learning rate times steps is that of the first figure, in shorter steps: with noise on features, its own
diverge.""",
    "WBCD": f"""WBCD, features in standard deviations, noise of scale 1/ε of them: so ε is for a change of
one deviation, and a change of any size costs about eight times that. As they ran it: {WBCD_LOCAL}. Ours,
by the exact engine, with {DEVIATION} bytes to a deviation: batch {WBCD.batch}, learning rate
{WBCD.rate:g}, {WBCD.epochs} epochs. Medians over seeds; bars are quartiles.""",
}


def _compared(rows: Sequence[Row], name: str) -> str:
    """A table: the authors' point, both of ours, and what a whole record is promised."""
    runs, own = _points(rows, name, AS_RUN), {each.x: each for each in _points(rows, name, OURS)}
    d = NETWORKS[name][0]
    totals = {row.x: row.number("total_epsilon") for row in tables.of(rows, name, OURS)}
    table = [
        f"| {name}, log₁₀ ε | ε of all {d} features | the authors' | as they ran it, again | ours |",
        "|---|---|---|---|---|",
    ]
    for each in runs:
        cells = [_theirs(name, each.x), _cell(each), _cell(own[each.x]) if each.x in own else ""]
        total = totals.get(each.x, math.nan)
        table.append(f"| {each.x:.2f} | {total:,.0f} | {cells[0]:.1f} | {cells[1]} | {cells[2]} |")
    return "\n".join(table) + "\n\n" + _near(name, runs)


def _theirs(name: str, x: float) -> float:
    return min(authors.points(AUTHORS, name), key=lambda point: abs(point.x - x)).y


def _cell(each: Point) -> str:
    spread = f" ± {each.deviation:.1f}" if isinstance(each, Mean) and each.seeds > 1 else ""
    return f"{each.y:.1f}{spread}"


def _near(name: str, means: Sequence[Point]) -> str:
    least, most = _NEAR[name]
    off = [(abs(mean.y - _theirs(name, mean.x)), mean.x) for mean in means if mean.x >= least]
    if not off:
        return ""
    near, (farthest, x) = sum(distance <= most for distance, _ in off), max(off)
    where = f" at log₁₀ ε ≥ {least:g}" if name == "MNIST" else ""
    return (
        f"As they ran it, {near} of {len(off)} points{where} are within {most:.1f} accuracy points of the "
        f"authors'; the farthest is {farthest:.1f} off (log₁₀ ε = {x:.2f})."
    )


def _over_http(row: Row) -> str:
    same = "the same bits" if row.number("differing_weights") == 0 else "OTHER BITS"
    return (
        "Helpers refuse sums without noise unless labels too were randomised in the browser, since only then "
        f"is the collection private. Over HTTP, two helpers as processes of their own, {row.dataset}, "
        f"ε = {row.number('feature_epsilon'):.3g} a feature and {row.number('label_epsilon'):g} a label: "
        f"{row.y:.1f} %. In memory, with the helpers' records and seeds: {row.number('in_memory'):.1f} %; "
        f"all {row.number('weights'):.0f} weights have {same}."
    )
