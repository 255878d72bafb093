"""The plots and the words of `global_dp`."""

import math
from collections.abc import Sequence
from pathlib import Path

from experiments import authors, drawing
from experiments import rows as tables
from experiments.rows import Mean, Median, Row
from experiments.settings import MNIST, NETWORKS, WBCD, WBCD_RAW

AUTHORS = "global_dp_accuracy"
AS_RUN, RAW = "as run", "as run on raw features in floats"
BY_BOUND, BY_RECORD = "as run but ψ/ε on the sum", "as run but 1/ε on each record"
TRUE, HTTP = "accounted", "accounted over HTTP"
NEAR = {"MNIST": (-0.06, 3.0), "WBCD": (-9.0, 300 / 69)}
"""From which log ε on, and within how many accuracy points, ours should be the authors'."""
_WAYS = {"MNIST": AS_RUN, "WBCD": RAW}
_ACCURACY = "test accuracy (%)"
Point = Mean | Median


def named(kind: str, bound: float) -> str:
    """A series."""
    return f"{kind}, bound={bound:g}"


def bounds(rows: Sequence[Row], name: str) -> list[float]:
    """The bounds of a dataset's rows, the largest first."""
    return sorted({row.number("bound") for row in tables.of(rows, name)}, reverse=True)


def as_run(rows: Sequence[Row], name: str, bound: float) -> Sequence[Point]:
    """WBCD's single runs are chance where there is much noise: medians there."""
    series = named(_WAYS[name], bound)
    return tables.means(rows, name, series) if name == "MNIST" else tables.medians(rows, name, series)


def draw(rows: Sequence[Row], out: Path) -> list[str]:
    """One plot as the authors ran it, with their points; one with the guarantee stated correctly."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    _draw_as_run(rows, here, out / "global_dp.svg")
    _draw_accounted(rows, here, out / "global_dp_accounted.svg")
    return ["global_dp.svg", "global_dp_accounted.svg"]


def _draw_as_run(rows: Sequence[Row], here: Sequence[str], path: Path) -> None:
    figure = drawing.panels(
        [f"{name}, as the authors ran it" for name in here],
        ["the authors' log₁₀ ε (it guarantees nothing: see text)"] * len(here),
        [_ACCURACY] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        for place, bound in enumerate(bounds(rows, name)):
            drawing.authors(axes, authors.points(AUTHORS, name, f"bound={bound:g}"), place)
            drawing.ours(axes, as_run(rows, name, bound), place, f"ψ = {bound:g}")
        axes.legend(handles=[*axes.get_legend_handles_labels()[0], drawing.AUTHORS], loc="lower right")
    drawing.save(figure, path)


def _draw_accounted(rows: Sequence[Row], here: Sequence[str], path: Path) -> None:
    figure = drawing.panels(
        [f"{name}, the whole training accounted" for name in here],
        ["total ε of the training, at δ = 10⁻⁵ (log scale)"] * len(here),
        [_ACCURACY] * len(here),
    )
    for axes, name in zip(figure.axes, here, strict=True):
        axes.set_xscale("log")
        axes.set_ylim(0, 100)
        for place, bound in enumerate(bounds(rows, name)):
            alone = tables.means(rows, name, named(TRUE, bound))
            drawing.ours(axes, alone, place, f"ψ = {bound:g}")
            drawing.faint(axes, _against_helpers(rows, name, named(TRUE, bound), alone), place)
        axes.legend(handles=[*axes.get_legend_handles_labels()[0], drawing.FAINT], loc="best")
    drawing.save(figure, path)


def _against_helpers(rows: Sequence[Row], name: str, series: str, alone: Sequence[Mean]) -> list[Mean]:
    """The same runs where they stand for the ad server with all helpers but one."""
    dearer = {row.x: row.number("coalition_epsilon") for row in tables.of(rows, name, series)}
    return [mean._replace(x=dearer[mean.x]) for mean in alone]


# In words.


def text(rows: Sequence[Row]) -> str:
    """What the page says."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    parts = [_AS_THEY_RAN_IT, *(_compared(rows, name) for name in here)]
    parts += [_others(rows)] if "MNIST" in here else []
    parts += [_NO_GUARANTEE, _ACCOUNTED, *(_accounted(rows, name) for name in here)]
    parts += [_over_http(row) for row in rows if row.series.startswith(HTTP)]
    return "\n\n".join(filter(None, parts))


_AS_THEY_RAN_IT = """**As the authors ran it.** Every record's gradient is scaled to ψ in L2, each of two
helpers adds Laplace noise of scale 1/ε to every coordinate of a batch's sum, and steps are not composed.
That is what fits their points: noise that ignores the bound, as in their prototype's code, once on the
sum. The text's ψ/ε, and noise on each record (its algorithm 3), do not fit; both are below."""
_LEAST = 2 * 10 * MNIST.epochs
"""At ψ = 10 and a scale of 1: a label that moves one coordinate by 2ψ in each batch of its record."""
_MOST = _LEAST * math.sqrt(397_510)
"""And one that moves all coordinates alike."""
_NO_GUARANTEE = f"""What such noise guarantees: a changed label moves the sum by up to 2ψ in L2, which can
be 2ψ√d in L1, and every record is in one batch an epoch. At ψ = 10 and "ε = 1" no more can be said of the
training on MNIST than that its ε lies between {_LEAST:,} and {_MOST:,.0f}, of one helper's noise."""
_ACCOUNTED = """**With the guarantee stated correctly.** The same training, with Gaussian noise that covers
2ψ from each of two helpers, batches drawn by chance (Poisson), all steps composed; δ = 10⁻⁵, and
neighbours differ in one record's secret, replaced by any other, real or fake. Two adversaries: the ad
server alone, which does not know the batches, and the ad server with all helpers but one, which does.
Noise now grows with the bound, so a large bound costs most."""


def _compared(rows: Sequence[Row], name: str) -> str:
    """A table of ours and the authors' points, and how many are near."""
    found = {bound: as_run(rows, name, bound) for bound in bounds(rows, name)}
    logs = sorted({mean.x for means in found.values() for mean in means})
    head = " | ".join(f"{log:.2f}" for log in logs)
    table = [f"| {name}, log₁₀ ε | {head} |", "|---|" + "---|" * len(logs)]
    for bound, means in found.items():
        table.append(f"| ψ = {bound:g} | {' | '.join(_cell(name, bound, mean) for mean in means)} |")
    return f"{_TRAININGS[name]}\n\n" + "\n".join(table) + f"\n\n{_near(name, found)}"


_TRAININGS = {
    "MNIST": f"""MNIST: {MNIST}. The authors' points are in brackets.""",
    "WBCD": f"""WBCD: {WBCD_RAW}, on features in their units of measurement, up to 4,254, in plain floats.
Bytes cannot hold those, so this series is not the engine's; but scaled features have gradients too short
to be clipped at 48, and show nothing of these curves. Medians over seeds, with quartiles in the plot:
where log₁₀ ε is below -3 a single run is chance, and the authors' points are single runs.""",
}


def _theirs(name: str, bound: float, x: float) -> float | None:
    found = [p.y for p in authors.points(AUTHORS, name, f"bound={bound:g}") if abs(p.x - x) < 1e-3]
    return found[0] if found else None


def _cell(name: str, bound: float, mean: Point) -> str:
    theirs = _theirs(name, bound, mean.x)
    return _told(mean) + ("" if theirs is None else f" ({theirs:.1f})")


def _told(mean: Point) -> str:
    spread = f" ± {mean.deviation:.1f}" if isinstance(mean, Mean) and mean.seeds > 1 else ""
    return f"{mean.y:.1f}{spread}"


def _number(theirs: float | None) -> str:
    return "" if theirs is None else f"{theirs:.1f}"


def _near(name: str, found: dict[float, Sequence[Point]]) -> str:
    """How many points are as near as they should be, and the farthest."""
    least, most = NEAR[name]
    off = [
        (abs(mean.y - theirs), bound, mean.x)
        for bound, means in found.items()
        for mean in means
        if mean.x >= least and (theirs := _theirs(name, bound, mean.x)) is not None
    ]
    if not off:
        return ""
    near, (farthest, bound, x) = sum(distance <= most for distance, *_ in off), max(off)
    where = f" at log₁₀ ε ≥ {least:.2f}" if name == "MNIST" else ""
    return (
        f"{near} of {len(off)} points{where} are within {most:.1f} accuracy points of the authors'; the "
        f"farthest is {farthest:.1f} off (ψ = {bound:g}, log₁₀ ε = {x:.2f})."
    )


def _others(rows: Sequence[Row]) -> str:
    """Noise that does not fit, at one bound."""
    found = {kind: series for kind in (BY_BOUND, BY_RECORD) for series in tables.names(rows, "MNIST")
             if series.startswith(f"{kind},")}  # fmt: skip
    if not found:
        return ""
    means = {kind: tables.means(rows, "MNIST", series) for kind, series in found.items()}
    (bound,) = {row.number("bound") for series in found.values() for row in tables.of(rows, "MNIST", series)}
    logs = [mean.x for mean in next(iter(means.values()))]
    table = [
        f"| MNIST, ψ = {bound:g}, log₁₀ ε | {' | '.join(f'{log:.2f}' for log in logs)} |",
        "|---|" + "---|" * len(logs),
        f"| the authors' | {' | '.join(_number(_theirs('MNIST', bound, log)) for log in logs)} |",
    ]
    table += [f"| {kind} | {' | '.join(map(_told, own))} |" for kind, own in means.items()]
    return "\n".join(table)


def _accounted(rows: Sequence[Row], name: str) -> str:
    chosen = bounds(rows, name)
    found = {bound: tables.means(rows, name, named(TRUE, bound)) for bound in chosen}
    costs = {row.x: row for bound in chosen for row in tables.of(rows, name, named(TRUE, bound))}
    table = [
        f"| {name}: ε against the ad server | with all helpers but one | each helper's noise, times 2ψ | "
        + " | ".join(f"ψ = {bound:g}" for bound in chosen) + " |",
        "|---|---|---|" + "---|" * len(chosen),
    ]  # fmt: skip
    for x, row in sorted(costs.items()):
        cells = " | ".join(_told(mean) for bound in chosen for mean in found[bound] if mean.x == x)
        dear, noise = row.number("coalition_epsilon"), row.number("noise")
        table.append(f"| {x:g} | {dear:.1f} | {noise:.3g} | {cells} |")
    bytes_ = "" if name == "MNIST" else f"WBCD, features scaled to bytes, by the exact engine: {WBCD}.\n\n"
    return bytes_ + "\n".join(table)


def _over_http(row: Row) -> str:
    same = "the same bits" if row.number("differing_weights") == 0 else "OTHER BITS"
    return (
        f"Over HTTP, two helpers as processes of their own, {row.dataset}, ψ = {row.number('bound'):g}, "
        f"ε = {row.x:g}: {row.y:.1f} %. In memory, with the helpers' own seeds: "
        f"{row.number('in_memory'):.1f} %; all {row.number('weights'):.0f} weights have {same}."
    )
