"""The plot and the words of `local_dp`."""

from collections.abc import Sequence
from pathlib import Path

from experiments import authors, compared, drawing, settings
from experiments import rows as tables
from experiments.compared import THREE_ROWS, Near, Theirs, cell
from experiments.rows import Row
from experiments.settings import NETWORKS

AUTHORS = "local_dp_accuracy"
AS_RUN, OURS, HTTP = "as run, in floats", "ours, in bytes", "ours over HTTP, labels too"
_NEAR = {"MNIST": Near(0.0, 3.0), "WBCD": THREE_ROWS}


def draw(rows: Sequence[Row], out: Path) -> list[str]:
    """A panel a dataset: the authors' points, their way run again, and ours."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    figure = drawing.panels(
        [f"{name}, noise on features alone" for name in here],
        ["the authors' log₁₀ ε (of noise on one feature; no label)"] * len(here),
        ["test accuracy (%)"] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        drawing.authors(axes, authors.points(AUTHORS, name), 0, "the authors'")
        drawing.ours(axes, compared.points(rows, name, AS_RUN), 0, "as they ran it, again (plain floats)")
        own = drawing.aside(compared.points(rows, name, OURS), 0.03)
        drawing.ours(axes, own, 1, "ours (rounded, clipped to a byte)")
        axes.legend(loc="lower right")
    drawing.save(figure, out / "local_dp.svg")
    return ["local_dp.svg"]


def text(rows: Sequence[Row]) -> str:
    """What the page says."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    parts = [_ABOUT, *(part for name in here for part in (_training(rows, name), _compared(rows, name)))]
    return "\n\n".join([*parts, *(_over_http(row) for row in rows if row.series == HTTP)])


_ABOUT = """Laplace noise on every feature in the browser, drawn once per record. Gradients are clipped, and
nothing is added to them; the rows to test with are clean, but for the last column, where they have the
browsers' noise too, as a model that is asked in the browser would see them. **What it protects:** one feature
of one record. All features of a record together have d times the ε of one, by composition: the second column,
for changes of any size. It protects no label at all: labels reach the sum as they are, and an ad server that
crafts weights reads them from it. As the authors ran it, a feature with noise can be any number, which no
byte holds: that series is plain floats. Ours rounds and clips to a byte (`core/local_dp.py`), which costs no
ε."""


def _training(rows: Sequence[Row], name: str) -> str:
    """Whose noise, on what features, and how both were trained."""
    ways = {
        said: settings.told(found[0])
        for series, said in ((AS_RUN, "As they ran it"), (OURS, "Ours, by the exact engine"))
        if (found := tables.of(rows, name, series))
    }
    return " ".join([_FEATURES[name], *(f"{said}: {trained}." for said, trained in ways.items())])


_FEATURES = {
    "MNIST": """MNIST, pixels in [0, 1]: the caption says "variance 1/ε", the text Laplace(1/ε); the points
fit a standard deviation of 1/ε, so a scale of 1/(√2 ε): a pixel that changes wholly has √2 times the ε of the
axis. Learning rate times steps is that of the first
figure, in shorter steps: with noise on features, its own diverge.""",
    "WBCD": """WBCD, features in standard deviations, noise of scale 1/ε of them: so ε is for a change of one
deviation, and a change of any size costs about eight times that (a byte holds four deviations either way).
These units, and this scale, are what fits of several. Medians of seeds; bars are quartiles.""",
}


def _compared(rows: Sequence[Row], name: str) -> str:
    """A table: the authors' point, both of ours, and what a whole record is promised."""
    again = compared.beside(rows, name, AS_RUN, Theirs(AUTHORS))
    runs = {each.point.x: each.point for each in again}
    own = {each.x: each for each in compared.points(rows, name, OURS)}
    served = {each.x: each for each in compared.points(_served(rows), name, OURS)}
    totals = {row.x: row.number("total_epsilon") for row in tables.of(rows, name, OURS)}
    table = [
        f"| {name}, log₁₀ ε | ε of all {NETWORKS[name][0]} features, ours | the authors' "
        "| as they ran it, again | ours | ours, served with noise |",
        "|---|---|---|---|---|---|",
    ]
    for x in sorted({*runs, *own}):
        other, total = compared.theirs(AUTHORS, name, "", x), totals.get(x)
        cells = [
            "" if total is None else f"{total:,.0f}",
            "" if other is None else f"{other:.1f}",
            *(cell(each[x]) if x in each else "" for each in (runs, own, served)),
        ]
        table.append(f"| {x:.2f} | {' | '.join(cells)} |")
    counted = compared.counted(_NEAR[name], again)
    missed = compared.missed(_NEAR[name], again) if name == "WBCD" else ""
    parts = ["\n".join(table), f"As they ran it, {counted}" if counted else ""]
    return "\n\n".join(filter(None, [*parts, *([_STEEP, missed] if missed else [])]))


def _served(rows: Sequence[Row]) -> list[Row]:
    """The same runs, tested on rows that have noise too."""
    column = "with_noise_at_serving"
    return [row._replace(y=row.number(column)) for row in rows if row.series == OURS]


_STEEP = """Where they are not, the curve is steep: single runs, which the authors' points are, go different
ways there. So near are our runs to theirs, and to each other, with the same settings and other seeds:"""


def _over_http(row: Row) -> str:
    same = "the same bits" if row.number("differing_weights") == 0 else "OTHER BITS"
    return (
        "Helpers refuse sums without noise unless labels too were randomised in the browser, since only then "
        "is the collection private. So the run over HTTP is no point of the plot, and shows that services "
        f"answer what memory computes: labels are randomised as well (ε = {row.number('label_epsilon'):g} a "
        f"label), and ψ = {row.number('bound'):g} with {row.number('fraction'):g} fractional bits leaves "
        f"unbiased masks room in the field. {row.dataset}, ε = {row.number('feature_epsilon'):.3g} a "
        f"feature: {row.y:.1f} %. In memory, with the helpers' records and seeds: "
        f"{row.number('in_memory'):.1f} %; all {row.number('weights'):.0f} weights have {same}."
    )
