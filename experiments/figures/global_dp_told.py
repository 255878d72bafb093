"""The words of `global_dp`."""

import math
from collections.abc import Sequence
from itertools import pairwise

from experiments import compared, settings
from experiments import rows as tables
from experiments.compared import THREE_ROWS, Beside, Near, cell
from experiments.figures.global_dp_series import (
    AS_RUN,
    AUTHORS,
    BY_BOUND,
    BY_RECORD,
    HTTP,
    RAW,
    TRUE,
    WAYS,
    accounted,
    as_run,
    bounds,
    coalition,
    named,
)
from experiments.rows import Row
from experiments.settings import NETWORKS
from maskedlark.dp.calibration import planned

NEAR = {"MNIST": Near(-0.06, 3.0), "WBCD": THREE_ROWS}


def text(rows: Sequence[Row]) -> str:
    """What the page says."""
    here = [name for name in NETWORKS if tables.of(rows, name)]
    parts = [_as_they_ran_it(rows), *(_compared(rows, name) for name in here)]
    parts += [_others(rows), _no_guarantee(rows), _ACCOUNTED, *(_accounted(rows, name) for name in here)]
    parts += [_over_http(row) for row in rows if row.series.startswith(HTTP)]
    return "\n\n".join(filter(None, parts))


def _as_they_ran_it(rows: Sequence[Row]) -> str:
    told = """**As the authors ran it.** Every record's gradient is scaled to ψ in L2, each of two helpers
adds Laplace noise of scale 1/ε to every coordinate of a batch's sum, and steps are not composed. That is what
fits their points: noise that ignores the bound, as in their prototype's code, once on the sum. The ψ/ε of
algorithm 3 does not fit: at ψ = 1 both are the same noise, and fit; at ψ = 10 it is ten times the noise that
fits there, with the same settings."""
    if chosen := bounds(rows, "MNIST", AS_RUN):
        once, twice = epochs_by_record(tables.of(rows, "MNIST", named(AS_RUN, chosen[0]))[0])
        told += f""" Noise on each record, as algorithm 3 has it, even of scale 1/ε, would need {once:,.0f}
epochs to come out as small, at any batch size; {twice:,.0f} if each of two helpers adds it."""
    return f"""{told} What is fitted is one constant: learning rate times steps comes from their points
without noise, and the batch that it goes with from those with noise. All points of a dataset have both in
common. Their other bounds (MNIST 0.5, 0.1 and 0.01; WBCD 79, 61 and 4) are run with `--full`."""


def epochs_by_record(row: Row) -> tuple[float, float]:
    """How many epochs would bear as much noise on each record as theirs bear on a sum: by one, and by two.

    With learning rate η in n steps over batches of B, noise of variance V on a sum moves weights by
    (η/B)² n V. ηn is fixed by the points without noise, and V is B times as large: η has to be smaller by
    that, whatever B is. Two helpers add noise to the sum as it is.
    """
    twice = row.number("epochs") * row.number("batch")
    return twice / 2, twice


_ACCOUNTED = """**With the guarantee stated correctly.** Gaussian noise that covers 2ψ from each of two
helpers, batches drawn by chance (Poisson), all steps composed; δ = 10⁻⁵, and neighbours differ in one
record's secret, replaced by any other, real or fake. Two adversaries: the ad server alone, which does not
know the batches, and the ad server with all helpers but one, which does. Noise now grows with the bound: a
larger bound cuts less off gradients, and buries them in more."""


def _no_guarantee(rows: Sequence[Row]) -> str:
    """What their noise is worth, at the largest bound and a scale of 1."""
    general = """What such noise guarantees: a changed label moves the sum by up to 2ψ in L2, which can be
2ψ√d in L1, and every record is in one batch an epoch."""
    if not (chosen := bounds(rows, "MNIST", AS_RUN)):
        return general
    least, most = pure_epsilons(tables.of(rows, "MNIST", named(AS_RUN, chosen[0]))[0])
    return f"""{general} At ψ = {chosen[0]:g} and "ε = 1", by one helper's noise, the pure ε (δ = 0) of the
training on MNIST is at least {least:,.0f} where a label can move the sum by 2ψ in each of its record's
batches, and at most {most:,.0f}."""


def pure_epsilons(row: Row) -> tuple[float, float]:
    """Of a label that moves one coordinate by 2ψ in each batch of its record; of one that moves all alike."""
    sizes = [int(size) for size in row.more["network"].split("-")]
    weights = sum((before + 1) * after for before, after in pairwise(sizes))
    least = 2 * row.number("bound") * row.number("epochs")
    return least, least * math.sqrt(weights)


def _compared(rows: Sequence[Row], name: str) -> str:
    """A table of ours and the authors' points, and how many are near."""
    found = {bound: as_run(rows, name, bound) for bound in bounds(rows, name, WAYS[name])}
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
    return "\n\n".join([*parts, *([_chance(rows), missed] if missed else [])])


def _training(rows: Sequence[Row], name: str) -> str:
    own = [row for row in tables.of(rows, name) if row.series.startswith(f"{WAYS[name]},")]
    trained, seeds = settings.told(own[0]), len({row.seed for row in own})
    if name == "MNIST":
        return (
            f"MNIST: {trained}. Means and deviations of {seeds} seeds; the authors' points are in brackets."
        )
    return f"""WBCD: {trained}, on features in their units of measurement, up to 4,254, in plain floats.
Bytes cannot hold those, so this series is not the engine's; but scaled features have gradients too short
to be clipped at 48, and show nothing of these curves. Medians of {seeds} seeds; bars are quartiles."""


def _with_theirs(each: Beside) -> str:
    return cell(each.point) + ("" if each.theirs is None else f" ({each.theirs:.1f})")


def _chance(rows: Sequence[Row]) -> str:
    """Why some points of WBCD are not near, before a table of them."""
    told = """Where they are not, single runs differ widely with their seeds. At ψ = 1 most say the same of
all 69 rows, which is right for 75.4 % or 24.6 %; at larger bounds these are points where the curve is steep.
The authors' are single runs, and seemingly all of them from the same first weights and batches: from
log₁₀ ε = -2.11 on, all 11 at ψ = 48 are 91.3, and all 11 at ψ = 19 are 78.3"""
    if quiet := [row for row in tables.of(rows, "WBCD", named(RAW, 48)) if row.x >= 0]:
        low, high = min(row.y for row in quiet), max(row.y for row in quiet)
        told += f""", where ours at ψ = 48, with a seed each, reach from {low:.1f} to {high:.1f} even at
log₁₀ ε = {quiet[0].x:g}"""
    return f"""{told}. So near are our runs to theirs, and to each other, with the same settings and other
seeds:"""


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
        table.append(f"| {x:g} | {coalition(row):.1f} | {row.number('noise'):.3g} | {shown} |")
    return _accounted_training(rows, name) + "\n".join(table)


def _accounted_training(rows: Sequence[Row], name: str) -> str:
    """How, by whose settings, and how many batches a record is charged for."""
    own = accounted(rows, name)
    seeds, row = len({row.seed for row in own}), own[0]
    trained = {
        "MNIST": f"MNIST, trained as above. Means of {seeds} seeds.",
        "WBCD": f"WBCD, features scaled to bytes, by the exact engine: {settings.told(row)}. Medians of "
        f"{seeds} seeds; bars are quartiles.",
    }[name]
    least, most = (end(map(_batches, own)) for end in (min, max))
    charged = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{trained} Who knows the batches knows who is in many: the second figure is for the most batches "
        f"that a record is in, but for a part of δ. That is {charged}, where the mean is "
        f"{row.number('epochs'):g}.\n\n"
    )


def _batches(row: Row) -> int:
    rate = row.number("batch") / row.number("rows")
    steps = int(row.number("epochs")) * math.ceil(row.number("rows") / row.number("batch"))
    return planned("gaussian", row.number("noise"), rate, steps, row.number("delta")).batches


def _over_http(row: Row) -> str:
    same = "the same bits" if row.number("differing_weights") == 0 else "OTHER BITS"
    return (
        f"Over HTTP, two helpers as processes of their own, {row.dataset}, ψ = {row.number('bound'):g}, "
        f"ε = {row.x:g}: {row.y:.1f} %. In memory, with the helpers' own seeds: "
        f"{row.number('in_memory'):.1f} %; all {row.number('weights'):.0f} weights have {same}."
    )
