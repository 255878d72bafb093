"""Committed results are what the code beside them gives: some rows of every figure, computed again."""

from pathlib import Path

import pytest

from experiments import data, figures, jobs, versions
from experiments.data.places import NotHere
from experiments.jobs import Job
from experiments.rows import Row
from experiments.size import Size

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
MOST_S = 3.0
"""Rows that took longer are left out."""


def cheapest(name: str) -> list[tuple[Job, Row]]:
    """Of every series the row that took least. Timings and real services differ every time."""
    known = figures.load(name).jobs(Size.DEFAULT)
    rows = {row.key: row for row in jobs.kept(known, RESULTS / f"{name}.csv")}
    found: dict[tuple[str, str], tuple[Job, Row]] = {}
    for job in known:
        row = rows[job.key]
        if job.alone or job.is_stale(row) or row.seconds > MOST_S:
            continue
        best = found.setdefault((job.dataset, job.series), (job, row))
        if row.seconds < best[1].seconds:
            found[job.dataset, job.series] = job, row
    return [*found.values()]


@pytest.mark.parametrize("name", figures.NAMES)
def test_every_row_says_what_made_it(name):
    known, path = figures.load(name).jobs(Size.DEFAULT), RESULTS / f"{name}.csv"
    rows, stale = jobs.kept(known, path), jobs.stale(known, path)
    assert len(rows) == len(known)
    assert all(row.more["commit"] for row in rows)
    said = f"**Stale: {len(stale):,} of {len(rows):,} runs were made by"
    assert (said in (RESULTS / "README.md").read_text()) == bool(stale)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in figures.NAMES if name != "cost"])
def test_some_rows_are_what_the_code_gives_now(name):
    compared = 0
    for job, row in cheapest(name):
        try:
            data.check(job.dataset)
        except NotHere as error:
            pytest.skip(str(error))
        found = job.run(job)
        # Processors differ in the last bits of what libraries compute in floats.
        near = pytest.approx(row.y, rel=1e-9 if job.code == versions.ALL else 0.02)
        assert found["y"] == near, f"{job.series}, {job.x:g}, seed {job.seed}, of {row.more['commit']}"
        compared += 1
    assert compared
