"""The plots and the words of `global_dp`."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from experiments import authors, compared, drawing, log_axes, settings
from experiments import rows as tables
from experiments.compared import EVERYWHERE, THREE_ROWS, Beside, Near, Point, Theirs, cell
from experiments.rows import Row
from experiments.settings import NETWORKS

AUTHORS = "global_dp_accuracy"
AS_RUN, RAW = "as run", "as run on raw features in floats"
BY_BOUND, BY_RECORD = "as run but ψ/ε on the sum", "as run but 1/ε on each record"
TRUE, HTTP = "accounted", "accounted over HTTP"
NEAR = {"MNIST": Near(-0.06, 3.0), "WBCD": Near(EVERYWHERE, THREE_ROWS)}
_WAYS = {"MNIST": AS_RUN, "WBCD": RAW}
_ACCURACY = "test accuracy (%)"
_MARKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


def named(kind: str, bound: float) -> str:
    """A series."""
    return f"{kind}, bound={bound:g}"


def bounds(rows: Sequence[Row], name: str, kind: str | None = None) -> list[float]:
    """The bounds of a dataset's rows, or of one kind of them, the largest first."""
    chosen = [row for row in tables.of(rows, name) if kind is None or row.series.startswith(f"{kind},")]
    return sorted({row.number("bound") for row in chosen}, reverse=True)


def as_run(rows: Sequence[Row], name: str, bound: float) -> list[Beside]:
    """As the authors ran it, at one bound, with their points."""
    their = Theirs(AUTHORS, f"bound={bound:g}", f"ψ = {bound:g}")
    return compared.beside(rows, name, named(_WAYS[name], bound), their)


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
    costs = [row for row in tables.of(rows, name) if row.series.startswith(f"{TRUE},")]
    low, high = min((row.x for row in costs), default=1.0), max(map(_dear, costs), default=10.0)
    return [mark for mark in _MARKS if low / 2 <= mark <= 2 * high]


def _against_helpers(rows: Sequence[Row], name: str, series: str, alone: Sequence[Point]) -> list[Point]:
    """The same runs where they stand for the ad server with all helpers but one."""
    dearer = {row.x: _dear(row) for row in tables.of(rows, name, series)}
    return [point._replace(x=dearer[point.x]) for point in alone]


def _dear(row: Row) -> float:
    return row.number("coalition_epsilon")


# In words.


def text(rows: Sequence[Row]) -> str:
    """What the page says."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    parts = [_AS_THEY_RAN_IT, *(_compared(rows, name) for name in here)]
    parts += [_others(rows), _no_guarantee(rows), _ACCOUNTED, *(_accounted(rows, name) for name in here)]
    parts += [_over_http(row) for row in rows if row.series.startswith(HTTP)]
    return "\n\n".join(filter(None, parts))


_AS_THEY_RAN_IT = """**As the authors ran it.** Every record's gradient is scaled to ψ in L2, each of two
helpers adds Laplace noise of scale 1/ε to every coordinate of a batch's sum, and steps are not composed.
That is what fits their points: noise that ignores the bound, as in their prototype's code, once on the
sum. The text's ψ/ε does not fit: at ψ = 1 both are the same noise, and fit; at ψ = 10 ψ/ε is ten times the
noise that fits there, with the same settings. Noise on each record (its algorithm 3) would need 440 epochs
to come out as small, 880 if each of two helpers adds it, whatever the batch size. What is fitted is one
constant: learning rate times steps comes from their points without noise, and the batch that it goes with
from those with noise. All points of a dataset have both in common."""
_ACCOUNTED = """**With the guarantee stated correctly.** The same training, with Gaussian noise that covers
2ψ from each of two helpers, batches drawn by chance (Poisson), all steps composed; δ = 10⁻⁵, and
neighbours differ in one record's secret, replaced by any other, real or fake. Two adversaries: the ad
server alone, which does not know the batches, and the ad server with all helpers but one, which does.
Noise now grows with the bound: a larger bound cuts less off gradients, and buries them in more."""


def _no_guarantee(rows: Sequence[Row]) -> str:
    """What their noise is worth, at the largest bound and a scale of 1."""
    general = """What such noise guarantees: a changed label moves the sum by up to 2ψ in L2, which can be
2ψ√d in L1, and every record is in one batch an epoch."""
    if not (chosen := bounds(rows, "MNIST", AS_RUN)):
        return general
    least, most = pure_epsilons(tables.of(rows, "MNIST", named(AS_RUN, chosen[0]))[0])
    return f"""{general} At ψ = {chosen[0]:g} and "ε = 1", by one helper's noise, the pure ε (δ = 0) of the
training on MNIST is at least {least:,.0f} where a label can move the sum by 2ψ, and at most {most:,.0f}."""


def pure_epsilons(row: Row) -> tuple[float, float]:
    """Of a label that moves one coordinate by 2ψ in each batch of its record; of one that moves all alike."""
    sizes = [int(size) for size in row.more["network"].split("-")]
    weights = sum((before + 1) * after for before, after in pairwise(sizes))
    least = 2 * row.number("bound") * row.number("epochs")
    return least, least * math.sqrt(weights)


def _compared(rows: Sequence[Row], name: str) -> str:
    """A table of ours and the authors' points, and how many are near."""
    found = {bound: as_run(rows, name, bound) for bound in bounds(rows, name, _WAYS[name])}
    every = [each for points in found.values() for each in points]
    logs = sorted({each.point.x for each in every})
    if not logs:
        return ""
    head = " | ".join(f"{log:.2f}" for log in logs)
    table = [f"| {name}, log₁₀ ε | {head} |", "|---|" + "---|" * len(logs)]
    for bound, points in found.items():
        cells = {each.point.x: _with_theirs(each) for each in points}
        table.append(f"| ψ = {bound:g} | {' | '.join(cells.get(log, '') for log in logs)} |")
    parts = [_training(rows, name), "\n".join(table), compared.counted(NEAR[name], every)]
    missed = compared.missed(NEAR[name], every) if name == "WBCD" else ""
    return "\n\n".join([*parts, *([_CHANCE, missed] if missed else [])])


def _training(rows: Sequence[Row], name: str) -> str:
    own = (row for row in tables.of(rows, name) if row.series.startswith(f"{_WAYS[name]},"))
    trained = settings.told(next(own))
    if name == "MNIST":
        return f"MNIST: {trained}. The authors' points are in brackets."
    return f"""WBCD: {trained}, on features in their units of measurement, up to 4,254, in plain floats.
Bytes cannot hold those, so this series is not the engine's; but scaled features have gradients too short
to be clipped at 48, and show nothing of these curves. Medians over seeds, with quartiles in the plot."""


def _with_theirs(each: Beside) -> str:
    return cell(each.point) + ("" if each.theirs is None else f" ({each.theirs:.1f})")


_CHANCE = """Where they are not, chance is compared with chance. Noise on 4,151 weights, under features up to
4,254, throws many runs to one side: they say the same of all 69 rows, which is right for 75.4 % or 24.6 %.
The authors' points are single runs, and all of them from the same first weights: from log₁₀ ε = -2.11 on, all
11 at ψ = 48 are 91.3, and all 11 at ψ = 19 are 78.3, where ours differ by first weights alone. So near are
our runs to theirs, and to each other, with the same settings and other seeds:"""


def _others(rows: Sequence[Row]) -> str:
    """Noise that does not fit, at one bound."""
    found = {kind: bounds(rows, "MNIST", kind) for kind in (BY_BOUND, BY_RECORD)}
    points = {kind: tables.means(rows, "MNIST", named(kind, own[0])) for kind, own in found.items() if own}
    if not points:
        return ""
    bound = max(own[0] for own in found.values() if own)
    points[AS_RUN] = tables.means(rows, "MNIST", named(AS_RUN, bound))
    lines = ["| MNIST, noise | log₁₀ ε | ours | the authors' |", "|---|--:|--:|--:|"]
    logs = {point.x for kind in found for point in points.get(kind, ())}
    for kind, own in points.items():
        for point in own:
            if point.x in logs:
                other = compared.theirs(AUTHORS, "MNIST", f"bound={bound:g}", point.x)
                shown = "" if other is None else f"{other:.1f}"
                lines.append(f"| {kind}, ψ = {bound:g} | {point.x:.2f} | {cell(point)} | {shown} |")
    return "The other noises, at the same settings:\n\n" + "\n".join(lines)


def _accounted(rows: Sequence[Row], name: str) -> str:
    chosen = bounds(rows, name, TRUE)
    found = {bound: compared.points(rows, name, named(TRUE, bound)) for bound in chosen}
    costs = {row.x: row for bound in chosen for row in tables.of(rows, name, named(TRUE, bound))}
    if not costs:
        return ""
    table = [
        f"| {name}: ε against the ad server | with all helpers but one | each helper's noise, times 2ψ | "
        + " | ".join(f"ψ = {bound:g}" for bound in chosen) + " |",
        "|---|---|---|" + "---|" * len(chosen),
    ]  # fmt: skip
    for x, row in sorted(costs.items()):
        cells = {bound: cell(point) for bound in chosen for point in found[bound] if point.x == x}
        shown = " | ".join(cells.get(bound, "") for bound in chosen)
        table.append(f"| {x:g} | {_dear(row):.1f} | {row.number('noise'):.3g} | {shown} |")
    return _accounted_training(name, next(iter(costs.values()))) + "\n".join(table)


def _accounted_training(name: str, row: Row) -> str:
    if name == "MNIST":
        return ""
    return (
        f"WBCD, features scaled to bytes, by the exact engine: {settings.told(row)}. Medians over seeds; "
        "bars are quartiles.\n\n"
    )


def _over_http(row: Row) -> str:
    same = "the same bits" if row.number("differing_weights") == 0 else "OTHER BITS"
    return (
        f"Over HTTP, two helpers as processes of their own, {row.dataset}, ψ = {row.number('bound'):g}, "
        f"ε = {row.x:g}: {row.y:.1f} %. In memory, with the helpers' own seeds: "
        f"{row.number('in_memory'):.1f} %; all {row.number('weights'):.0f} weights have {same}."
    )
