"""The page of results: every figure with what was run, the authors' points beside ours, and how to run it."""

from collections.abc import Sequence
from pathlib import Path

from experiments import authors, figures, jobs, made
from experiments.figures import Figure
from experiments.made import Made
from experiments.rows import Row
from experiments.size import Size

_HEAD = f"""# Results

What the authors of the paper showed, run again, and what right accounting changes. Hollow markers are the
authors' points, read off the plots in {authors.SOURCE}
(`experiments/authors.csv`, within about 0.3 accuracy points, 0.6 where a marker is partly hidden). Filled
markers are ours; a bar is one standard deviation over seeds, or reaches from quartile to quartile where the
text speaks of medians. Where bars would hide each other, points stand a little to the side.

Gradients are those of the exact engine, in memory: the true label is the only candidate and its mask is 1.
That is, bit for bit, what the shares of all helpers add up to (`tests/unit/experiments/test_memory.py`).
Noise is not bit for bit a helper's: the Gaussian noise of all helpers is one draw of float32 numbers, with
the deviation of their sum. Where a run is repeated over HTTP, through real processes, its twin in memory has
the helpers' own seeds, and so their own noise; the second figure's run over HTTP has a bound, and randomised
labels, that no point of its plot has. Where a series is something else, plain floats or Opacus, its
name says so.

That their log is of base 10, and their cost a multiple of an epoch that is run locally, are assumptions that
fit. Learning rate, batch and epochs of their runs are not known. Learning rate times steps was chosen once,
on their points without noise (MNIST at bound 10, WBCD in its units of measurement at 48; for WBCD in
standard deviations, and in bytes, it is our own). How it is split was fitted to their points with noise, in
runs that are not kept here: noise on the sum of a batch weighs by batch size and learning rate, so one
constant a dataset comes from their curves (MNIST: a learning rate of 2.5e-5 times the batch size squared,
from six bounds and 17 values of ε; WBCD: batches of 100, since 50 and 500 miss). So were the scale of noise
on features, and the units that these are in. All are the same for every point of a series; nothing is fitted
point by point.

Each CSV names the commit that made a row, and the versions of our code that its numbers follow from. Runs
"on the way to 41c362b08a2c" were made by versions that are in the history as that one commit alone, which
holds their code and added their rows.
"""
_QUICK = """
**This is a quick look (`--quick`): one seed, few points, fewer rows. It shows that everything runs, and
stands for nothing else.**
"""
_STALE = """\
**Stale: {stale:,} of {runs:,} runs were made by versions of draws, engine or noise that are not known, or
have changed since. Run now, the same seeds may give other numbers.**"""


def write(out: Path, size: Size) -> Path:
    """Of all figures that are in this folder."""
    sections = [
        text for number, name in enumerate(figures.NAMES, 1) if (text := _section(number, name, out, size))
    ]
    page = out / "README.md"
    head = _HEAD + (_QUICK if size is Size.QUICK else "")
    page.write_text("\n".join([head, *sections]), encoding="utf-8")
    return page


def _section(number: int, name: str, out: Path, size: Size) -> str:
    """Nothing, where it was never drawn."""
    found = made.read(out, name)
    if found is None:
        return ""
    try:
        figure = figures.load(name)
    except ModuleNotFoundError as error:
        plots = ", ".join(f"[{plot}]({plot})" for plot in found.plots)
        told = f"Drawn earlier ({plots}); its words need {error.name}, which is not here."
        return f"## {number}. {name}\n\n{told}\n"
    own, path = figure.jobs(size), out / f"{name}.csv"
    rows = jobs.kept(own, path)
    return _told(number, figure, rows, found, len(jobs.stale(own, path))) if rows else ""


def _told(number: int, figure: Figure, rows: Sequence[Row], found: Made, stale: int) -> str:
    plots = "\n\n".join(f"![{figure.TITLE}]({plot})" for plot in found.plots)
    parts = (
        f"## {number}. {figure.TITLE}",
        *([_STALE.format(stale=stale, runs=len(rows))] if stale else []),
        plots,
        figure.text(rows).strip(),
        _made(figure.NAME, rows, found),
    )
    return "\n\n".join(parts)


def _made(name: str, rows: Sequence[Row], found: Made) -> str:
    seeds = sorted({row.seed for row in rows})
    minutes = sum(row.seconds for row in rows) / 60
    missing = f" Left out, since it was not there: {', '.join(found.missing)}." if found.missing else ""
    commits = list(dict.fromkeys(row.more.get("commit", "unknown") for row in rows))
    told = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
    return (
        f"Made by `{found.command}`: {len(rows):,} runs, {_seeds(seeds)}, {minutes:.1f} minutes one by one; "
        f"[{name}.csv]({name}.csv) has every run with its settings. By {told}, on "
        f"{found.machine}.{missing}\n"
    )


def _seeds(found: Sequence[int]) -> str:
    """In words: those of a figure are the first so many."""
    listed = [str(seed) for seed in found]
    if len(found) == 1:
        return f"seed {listed[0]}"
    following = list(found) == list(range(found[0], found[-1] + 1))
    return f"seeds {listed[0]} to {listed[-1]}" if following else f"seeds {', '.join(listed)}"
