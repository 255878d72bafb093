"""How useful the campaign report is: visits, conversions and spend by e-mail and channel, against ε and k.

Nothing is sampled from customers: a bar is what the helpers' noise does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments import drawing, log_axes
from experiments import rows as tables
from experiments.figures.campaigns_asked import (
    CONFIDENCE,
    FINE,
    MAX_SPEND,
    SERIES,
    K,
    asked,
    asked_over_http,
    noise_of,
    together,
)
from experiments.jobs import Job, Value
from experiments.rows import Mean, Row
from experiments.size import Size

NAME = "campaigns"
TITLE = "How useful a private campaign report is"

DATA = "Hillstrom"
ON_HTTP = "visits, over HTTP"
_DRAWS = 20
_BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_KS = (1, 20, 50, 100, 200, 500, 1000)
_WHOLE, _CUT = "spend, up to $500 a customer", "spend, cut at $200"
_HIDDEN = {"groups": "hidden_groups", "customers": "hidden_records"}


def jobs(size: Size) -> Sequence[Job]:
    """Against ε over nine groups, against k over 171, and one report over HTTP."""
    budgets = size.pick((1.0, 8.0), _BUDGETS, _BUDGETS)
    ks = size.pick((20, 200), _KS, _KS)
    seeds = range(size.pick(3, _DRAWS, 5 * _DRAWS))
    coarse = [
        _job(name, epsilon, seed, _settings(epsilon, K, most_spend))
        for epsilon in budgets
        for seed in seeds
        for name, (_, most_spend) in SERIES.items()
    ]
    fine = [_job(name, k, seed, _settings(1.0, k)) for k in ks for seed in seeds for name in FINE]
    settings = _settings(1.0, K) | {"customers": size.pick(4000, 64_000, 64_000)}
    weight = size.pick(30.0, 200.0, 200.0)
    return [*coarse, *fine, Job(DATA, ON_HTTP, 1.0, 0, asked_over_http, settings, weight, True)]


def _job(name: str, x: float, seed: int, settings: Mapping[str, Value]) -> Job:
    """Lines that show columns of the same report are asked together."""
    group = f"{name in FINE} {seed} {dict(settings)}"
    return Job(DATA, name, x, seed, asked, settings, together=together, group=group)


def _settings(epsilon: float, k: int, most_spend: int = MAX_SPEND) -> dict[str, Value]:
    return {"epsilon": epsilon, "k": k, "most_spend": most_spend, "confidence": CONFIDENCE}


def draw(rows: Sequence[Row], out: Path) -> Sequence[str]:
    """Error against ε, error against k, and what k hides."""
    error = "mean relative error of a group (%)"
    figure = drawing.panels(
        ["9 groups, k = 50", "171 groups, ε = 1", "171 groups: what k hides"],
        ["ε of the whole report", "k (records)", "k (records)"],
        [error, error, "not shown (%)"],
    )
    budget, small, hidden = figure.axes
    for place, name in enumerate(SERIES):
        drawing.ours(budget, tables.means(rows, DATA, name), place, name)
    for place, name in enumerate(FINE):
        drawing.ours(small, tables.means(rows, DATA, name), place, name.partition(",")[0])
    for row in tables.of(rows, DATA, ON_HTTP):
        budget.plot([row.x], [row.y], "kx", ms=9, mew=1.8, zorder=4, label=ON_HTTP)
    for place, (label, column) in zip((4, 6), _HIDDEN.items(), strict=True):
        points = sorted({(row.x, row.number(column)) for row in _fine(rows)})
        drawing.ours(hidden, [Mean(x, y, 0.0, 1) for x, y in points], place, label)
    hidden.set_ylim(-3, 103)
    ks = [row.x for row in _fine(rows)]
    budgets = [mean.x for mean in tables.means(rows, DATA, "visits")]
    for axes, marks in ((budget, budgets), (small, ks), (hidden, ks)):
        log_axes.across(axes, marks)
        axes.legend()
    log_axes.up(budget)
    log_axes.up(small)
    drawing.save(figure, out / "campaigns.svg")
    return ["campaigns.svg"]


def _fine(rows: Sequence[Row]) -> list[Row]:
    """One row for every k."""
    found = {row.x: row for name in FINE for row in tables.of(rows, DATA, name)}
    return [found[k] for k in sorted(found)]


def text(rows: Sequence[Row]) -> str:
    """What was asked, what is seen, and whether intervals hold."""
    return f"""Hillstrom's e-mail challenge: 64,000 customers, of whom 14.7 % visited and 0.9 % bought.
The report sums three values by e-mail and channel (nine groups) in one question: three columns of Laplace
noise, which compose, so each is charged a third of ε (δ = 0), and each of two helpers adds all of it. One
record moves a visit or a conversion by 1, and spend by all that was declared for a customer. Errors are those
of the groups that are shown, against the truth in the clear, of which an error is a part (of 1 where that
is 0); bars are over {_draws(rows)} draws of the helpers' noise, the data being fixed.

{_by_epsilon(rows)}

The noise of spend is in units of the most that one customer may spend. Cutting that at $200 loses a sixth of
the spend, once and for all, and takes 60 % off the noise. {_cut(rows)} What to declare is decided before any
report is made, from what is known anyway.

Small groups, by e-mail, channel, place and purchases before (171 groups), at ε = 1. k hides the smallest, on
which the same noise weighs most:

{_by_k(rows)}

The intervals that are shown with every number are for {100 * CONFIDENCE:.0f} %: of all of the above,
{_coverage(rows)} held. For spend that was cut that is of what is left of it: an interval shows what noise
did, and not what a cut took.

{_http(rows)}
"""


def _cut(rows: Sequence[Row]) -> str:
    """Where the cut is worth its loss, as found."""
    whole, cut = ({mean.x: mean.y for mean in tables.means(rows, DATA, name)} for name in (_WHOLE, _CUT))
    both = sorted(whole.keys() & cut.keys())
    better = [f"{x:g}" for x in both if cut[x] < whole[x]]
    worse = [f"{x:g}" for x in both if cut[x] >= whole[x]]
    told = [f"better at ε = {', '.join(better)}"] if better else []
    told += [f"not better at ε = {', '.join(worse)}"] if worse else []
    return f"Here that is {'; '.join(told)}." if told else ""


def _draws(rows: Sequence[Row]) -> int:
    return len({row.seed for row in tables.of(rows, DATA)})


def _by_epsilon(rows: Sequence[Row]) -> str:
    names = list(SERIES)
    found = {name: {mean.x: mean for mean in tables.means(rows, DATA, name)} for name in names}
    lines = ["| ε | noise multiplier | " + " | ".join(f"{name}, %" for name in names) + " |"]
    lines.append("|--:" * (len(names) + 2) + "|")
    for x in sorted(found[names[0]]):
        cells = " | ".join(_with_bar(found[name][x]) for name in names)
        lines.append(f"| {x:g} | {noise_of(x):g} | {cells} |")
    return "\n".join(lines)


def _with_bar(mean: Mean) -> str:
    digits = 0 if mean.y >= 100 else 1 if mean.y >= 10 else 2
    return f"{mean.y:.{digits}f} ± {mean.deviation:.{digits}f}"


def _by_k(rows: Sequence[Row]) -> str:
    found = [{mean.x: mean for mean in tables.means(rows, DATA, name)} for name in FINE]
    lines = ["| k | groups hidden, % | customers hidden, % | error of visits, % | error of conversions, % |"]
    lines.append("|--:" * 5 + "|")
    for row in _fine(rows):
        errors = " | ".join(_with_bar(each[row.x]) for each in found)
        hidden = " | ".join(f"{row.number(column):.1f}" for column in _HIDDEN.values())
        lines.append(f"| {row.x:.0f} | {hidden} | {errors} |")
    return "\n".join(lines)


def _coverage(rows: Sequence[Row]) -> str:
    """Weighted by the groups shown: of all intervals, how many held."""
    judged_rows = [row for row in rows if row.series != ON_HTTP]
    shown = [row.number("groups") * (100 - row.number("hidden_groups")) / 100 for row in judged_rows]
    held = sum(row.number("coverage") * count for row, count in zip(judged_rows, shown, strict=True))
    return f"{held / sum(shown):.1f} %"


def _http(rows: Sequence[Row]) -> str:
    found = tables.of(rows, DATA, ON_HTTP)
    if not found:
        return ""
    row = found[0]
    same = "the same" if row.number("noise") == noise_of(row.x) else "ANOTHER"
    memory = [each for each in tables.of(rows, DATA, "visits") if each.x == row.x]
    if not memory:
        return ""
    low, high = min(each.y for each in memory), max(each.y for each in memory)
    return (
        f"The same report over HTTP, through real processes, with {int(row.number('customers')):,} customers "
        f"at ε = {row.x:g}: helpers took {same} noise multiplier ({row.number('noise'):g}); visits are "
        f"off by {row.y:.2g} % (in memory, where there are always 64,000, by {low:.2g} to {high:.2g} %), and "
        f"{row.number('held'):.0f} of {row.number('intervals'):.0f} intervals hold. To make, send and freeze "
        f"all reports took {row.number('until_frozen_s'):.0f} s."
    )
