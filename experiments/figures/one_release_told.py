"""The words of the figure of one release: what was run, how all was chosen without labels, and the table."""

from collections.abc import Sequence
from statistics import fmean

from experiments import rows as tables
from experiments.figures import one_release_checked
from experiments.figures.accounted_run import MASKED, OPACUS, PARTITIONED, TASKS
from experiments.figures.one_release_checked import CELLS, CLEAR, LEARNT, LINEAR, RANDOMISED, STUDENT
from experiments.figures.one_release_run import COMPONENTS, LEARNT_STEPS, MNIST, SHOPPERS
from experiments.figures.one_release_students import EPOCHS, HIDDEN
from experiments.rows import Mean, Row

__all__ = ["CELLS", "CLEAR", "LEARNT", "LINEAR", "ON_HTTP", "RANDOMISED", "STUDENT", "text"]
ON_HTTP = "one release, over HTTP"


def text(rows: Sequence[Row]) -> str:
    """What was run and chosen, the tables, and what went over HTTP."""
    named = [name for name in (MNIST, SHOPPERS) if tables.of(rows, name)]
    parts = (
        _RUN,
        *(_table(rows, name) for name in named),
        _CHOSEN,
        *one_release_checked.parts(rows),
        one_release_checked.refined(rows),
        _http(rows),
    )
    return "\n\n".join(filter(None, parts))


_RUN = f"""In memory by the package's own code: browsers' masks, two helpers with their own noise, the ad
server's client; one helper's noise is accounted, both are added. One release has no batches, so its ε is the
same against the ad server alone and against it with all helpers but one.

- *Linear model*: `fitting.LogisticRegression` from one release of Σ φ(x) y with Gaussian noise; all defaults
  on the table; on MNIST of {COMPONENTS} principal components of the pixels, in bytes, with the map `columns`.
- *Cells*: `fitting.CellLabels`, all defaults (on the table in the map `buckets`), from one release of labels
  counted in clusters, with Laplace noise, δ = 0. Its soft labels train a student: on MNIST a network
  784-{HIDDEN}-10 (Adam, {EPOCHS} epochs), on the table gradient boosting. *Learnt features*: clusters in the
  space of `examples/pretrain.py`, 784-1024-64 (of the table 30-256-32), {LEARNT_STEPS:,} steps without
  labels, and its student (of the table gradient boosting).
- *Randomised in browsers*: every browser sends one label by randomised response, δ = 0, and there are no
  helpers. The same student (of the table: a logistic regression of the map `buckets` with a normal prior) is
  trained by the likelihood of the labels sent.
- *Gradients* and *Opacus*: the runs of figure 4, of three seeds, and one split of the table.

A seed draws noise, clusters and the student's first weights, and of the table the split: three quarters to
fit, a quarter to test."""
_CHOSEN = """No run chooses anything by a label. The encoder is fitted to the rows to fit with. Of a linear
model, map, clip and their competitors are compared by what a release would explain of an assumed truth,
before anything is asked; the ridge follows from the release itself, by empirical Bayes. Of cells, the number
follows from the number of rows, k and the noise; clusters are k-means of the rows. Learnt features see rows
alone. Students have settings that are usual, tried once, and the same at every ε.

Constants of the package are what was found good once: how many steps and leaves a map has, the ridge of its
whitening, the size of a cell, the smoothing. They were found with these data in hand, on MNIST and on the
table's split of seed 0, and no record says that test rows were never looked at then. Splits are random: rows
that other seeds test with were among those of seed 0. What hangs on that is measured here."""
_COLUMNS = (
    (LINEAR, "linear model"),
    (CELLS, "cells"),
    (LEARNT, "cells, learnt features"),
    (RANDOMISED, "randomised in browsers"),
    (PARTITIONED, "gradients, partition"),
    (MASKED, "gradients, Poisson (ε of a coalition)"),
    (OPACUS, "Opacus"),
)


def _table(rows: Sequence[Row], name: str) -> str:
    """Scores by ε: against everybody but for Poisson batches, and Opacus, which trusts one party."""
    found = {each: tables.means(rows, name, each) for each, _ in _COLUMNS}
    shown = [(series, label) for series, label in _COLUMNS if found[series]]
    epsilons = sorted({mean.x for means in found.values() for mean in means})
    unit = TASKS[name].unit
    lines = [
        f"| {name}, {unit}: ε | {' | '.join(_head(label, found[series]) for series, label in shown)} |",
        f"|--:|{'--:|' * len(shown)}",
    ]
    for epsilon in epsilons:
        own = [_score(rows, name, series, _at(found[series], epsilon)) for series, _ in shown]
        lines.append(f"| {epsilon:g} | {' | '.join(own)} |")
    clear = [
        f"{said} {_plain(name, mean)}"
        for series, said in ((CLEAR, "linear model"), (STUDENT, "student"))
        for mean in tables.means(rows, name, series)
    ]
    told = [f"Of labels in the clear: {', '.join(clear)}." if clear else "", _losses(rows, name)]
    return "\n".join(lines) + "\n\n" + " ".join(filter(None, told))


def _losses(rows: Sequence[Row], name: str) -> str:
    """How much more log-loss the linear model has than with clear labels, on the same splits."""
    clear = {row.seed: row.number("log_loss") for row in tables.of(rows, name, CLEAR)}
    over: dict[float, list[float]] = {}
    for row in tables.of(rows, name, LINEAR):
        if row.seed in clear:
            over.setdefault(row.x, []).append(100 * (row.number("log_loss") / clear[row.seed] - 1))
    told = ", ".join(f"{fmean(each):+.1f} % at {x:g}" for x, each in sorted(over.items()))
    return f"Log-loss of the linear model over that of clear labels, by ε: {told}." if told else ""


def _head(label: str, means: Sequence[Mean]) -> str:
    seeds = min(mean.seeds for mean in means)
    return f"{label}; {seeds} seed{'s' if seeds > 1 else ''}"


def _at(means: Sequence[Mean], epsilon: float) -> Mean | None:
    return next((mean for mean in means if mean.x == epsilon), None)


def _score(rows: Sequence[Row], name: str, series: str, mean: Mean | None) -> str:
    if mean is None:
        return ""
    told = _plain(name, mean)
    if series != MASKED:
        return told
    row = next(row for row in tables.of(rows, name, series) if row.x == mean.x)
    return f"{told} ({row.number('coalition_epsilon'):.3g})"


def _plain(name: str, mean: Mean) -> str:
    digits = TASKS[name].digits
    return f"{mean.y:.{digits}f}" + (f" ± {mean.deviation:.{digits}f}" if mean.seeds > 1 else "")


def _http(rows: Sequence[Row]) -> str:
    """The points that services answered too."""
    told = []
    for row in (row for name in (MNIST, SHOPPERS) for row in tables.of(rows, name, ON_HTTP)):
        task, same = TASKS[row.dataset], row.number("differing") == 0
        verdict = "every one has the same bits" if same else f"{row.more['differing']} rows differ"
        own = f"{row.y:.{task.digits}f} and {row.number('in_memory'):.{task.digits}f}"
        told.append(
            f"{row.dataset}, {row.more['of']}, at ε = {row.x:g}: {task.unit} {own}; "
            f"{row.number('numbers'):,.0f} numbers were compared, and {verdict}."
        )
    head = """Over HTTP too, through real processes, and once more in memory with the records and the noise
that the helpers had:"""
    return "\n".join([head, "", *(f"- {each}" for each in told)]) if told else ""
