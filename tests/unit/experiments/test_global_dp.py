"""Accuracy against noise on gradients: what is run, and what is said of it."""

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from experiments.figures import global_dp
from experiments.figures import global_dp_series as series_of
from experiments.figures import global_dp_told as told
from experiments.jobs import Job, Value
from experiments.rows import Row
from experiments.size import Size

SMALL: dict[str, Value] = {
    "network": "30-50-50-1",
    "noise_helpers": 2,
    "helpers": 2,
    "rows": 200,
    "batch": 50,
    "learning_rate": 0.5,
    "epochs": 2,
    "bound": 1.0,
    "delta": 1e-5,
    "fraction": 14,
}


def wbcd(series, x, run, **changes):
    pytest.importorskip("sklearn")
    job = Job("WBCD", series, x, 0, run, {**SMALL, **changes})
    return run(replace(job, needs=global_dp.needs(job)))


def rows(size=Size.DEFAULT, datasets=("MNIST", "WBCD"), y=50.0):
    """As if every run had found the same."""
    found = {"adserver_epsilon": 3.0, "coalition_epsilon": 30.0, "noise": 0.5, "in_memory": 50.0}
    found |= {"differing_weights": 0, "weights": 9}
    return [
        Row(job.key, job.dataset, job.series, job.x, job.seed, y, 1.0,
            {name: str(value) for name, value in {**job.settings, **found}.items()})
        for job in global_dp.jobs(size) if job.dataset in datasets
    ]  # fmt: skip


def test_the_default_grid_is_the_issues():
    jobs = global_dp.jobs(Size.DEFAULT)
    run = [job for job in jobs if job.dataset == "MNIST" and job.run is global_dp.as_run]
    assert {job.settings["bound"] for job in run} == {10, 5, 2, 1}
    assert len({job.x for job in run}) == 6
    assert {job.seed for job in run} == {0, 1, 2}
    assert len({job.key for job in jobs}) == len(jobs)
    every = [job for job in global_dp.jobs(Size.FULL) if job.run is global_dp.as_run]
    assert {job.settings["bound"] for job in every} == {10, 5, 2, 1, 0.5, 0.1, 0.01}
    assert len({job.x for job in every}) == 17


def test_noise_ignores_the_bound_as_run_and_not_as_the_text_has_it(monkeypatch):
    seen = []
    monkeypatch.setattr(global_dp, "_trained", lambda job, noise: seen.append(noise))
    job = Job("MNIST", "s", 1.0, 0, global_dp.as_run, {"bound": 5.0, "batch": 250, "noise_helpers": 2})
    global_dp.as_run(job)
    global_dp.by_bound(job)
    global_dp.by_record(job)
    assert [(law.scale, law.helpers, law.records) for law in seen] == [
        (0.1, 2, 1),
        (0.5, 2, 1),
        (0.1, 2, 250),
    ]


def test_an_accounted_run_has_the_noise_that_was_found_for_it():
    pytest.importorskip("sklearn")
    known = {"adserver_epsilon": 3.0, "coalition_epsilon": 9.0}
    job = Job("WBCD", "s", 3.0, 0, global_dp.accounted, SMALL)
    quiet, loud = (
        global_dp.accounted(replace(job, needs=global_dp.needs(job), known={**known, "noise": noise}))
        for noise in (0.01, 1000.0)
    )
    assert quiet["y"] != loud["y"]
    assert (quiet["adserver_epsilon"], quiet["coalition_epsilon"], loud["noise"]) == (3, 9, 1000)


@pytest.mark.long
def test_an_accounted_run_costs_what_it_says():
    found = wbcd("s", 3.0, global_dp.accounted)
    assert 0 <= found["y"] <= 100
    assert 2.9 < found["adserver_epsilon"] <= 3 < found["coalition_epsilon"]
    assert found["noise"] > 0.1


def test_as_run_on_raw_features():
    given = {"rows": 500, "batch": 100, "learning_rate": 1e-4, "epochs": 200, "bound": 48.0}
    # Without noise most seeds reach 85 % and more, this one too. With so much, none learns.
    assert wbcd("s", 0.0, global_dp.raw, **given)["y"] > 85
    assert wbcd("s", -6.0, global_dp.raw, **given)["y"] < 80


@pytest.mark.parametrize("datasets", [("MNIST", "WBCD"), ("WBCD",), ("MNIST",)])
def test_it_is_drawn_and_told_of_what_there_is(tmp_path, datasets):
    found = rows(datasets=datasets)
    names = global_dp.draw(found, tmp_path)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    words = global_dp.text(found)
    for name in ("MNIST", "WBCD"):
        assert (f"| {name}, log₁₀ ε |" in words) == (name in datasets)
    assert ("as run but ψ/ε on the sum" in words) == ("MNIST" in datasets)
    assert ("all 9 weights have the same bits" in words) == ("WBCD" in datasets)


def test_distances_to_the_authors_are_counted():
    words = told._compared(rows(y=97.0), "MNIST")
    # Of the authors' points at these bounds and ε.
    off = [
        each.off()
        for bound in (10, 5, 2, 1)
        for each in series_of.as_run(rows(y=97.0), "MNIST", bound)
        if each.point.x > -0.06
    ]
    near = sum(each <= 3 for each in off)
    assert f"{near} of 16 points at log₁₀ ε ≥ -0.06 are within 3.0" in words
    assert f"the farthest is {max(off):.1f} off" in words
    assert 0 < near < 16


def test_weights_that_differ_over_http_are_shouted():
    (row,) = [row for row in rows() if row.series.startswith(series_of.HTTP)]
    assert "OTHER BITS" in told._over_http(row._replace(more={**row.more, "differing_weights": "1"}))


def test_a_bound_costs_more_than_it_says():
    # ψ = 10, four epochs, noise of scale 1: 80 at least, √d times that at most.
    row = next(row for row in rows() if row.series == series_of.named(series_of.AS_RUN, 10))
    least, most = told.pure_epsilons(row)
    assert least == 80
    assert np.isclose(most / least, np.sqrt(784 * 500 + 500 + 500 * 10 + 10))
    assert "the pure ε (δ = 0)" in told.text(rows())


def test_three_rows_off_are_near_and_what_is_farther_is_told_with_its_reason():
    # The authors' 91.3 at bound 48 without noise is 63 of 69 rows; 60 of 69 are three off.
    for right, near in ((60, True), (59, False)):
        found = [row for row in rows(y=100 * right / 69) if row.series == series_of.named(series_of.RAW, 48)]
        words = told._compared(found, "WBCD")
        assert ("| ψ = 48, log₁₀ ε = 0.00 | 91.3 |" in words) != near
        assert "single runs differ widely" in words, "others are not near"
    everywhere = [row for row in rows(y=100 * 54 / 69) if row.series == series_of.named(series_of.RAW, 19)]
    assert "single runs" not in told._compared(everywhere, "WBCD")


def test_settings_that_are_printed_are_the_rows_own():
    words = told.text(rows(Size.QUICK))
    assert "784-500-10, ReLU, plain SGD, batch 250, learning rate 1.5, 5 epochs of 10,000 rows" in words
    assert "The other noises" not in words, "a quick look has none"
    assert "4 epochs of 50,000 rows" in told.text(rows())


def test_where_single_runs_are_chance_there_are_many():
    jobs = [job for job in global_dp.jobs(Size.DEFAULT) if job.dataset == "WBCD" and not job.alone]
    for series, x in {(job.series, job.x) for job in jobs}:
        here = [job for job in jobs if (job.series, job.x) == (series, x)]
        assert len({job.seed for job in here}) == (30 if series.startswith(series_of.RAW) else 10)
    # All of a point are found together, and no other with them.
    raw = [job for job in jobs if job.series.startswith(series_of.RAW)]
    points, groups = {(job.series, job.x) for job in raw}, {job.group for job in raw}
    assert len({(job.series, job.x, job.group) for job in raw}) == len(groups) == len(points)


def test_seeds_together_find_what_each_finds_alone():
    given = {"rows": 500, "batch": 100, "learning_rate": 1e-4, "epochs": 2}
    jobs = [Job("WBCD", "s", -1.0, seed, global_dp.raw, {**SMALL, **given}) for seed in range(3)]
    pytest.importorskip("sklearn")
    assert global_dp.raw_together(jobs) == [global_dp.raw(job) for job in jobs]


def test_noise_on_each_record_needs_many_epochs():
    row = next(row for row in rows() if row.series == series_of.named(series_of.AS_RUN, 10))
    assert told.epochs_by_record(row) == (500, 1000)
    assert "would need 500 epochs" in " ".join(told.text(rows()).split())


def test_the_coalitions_figure_is_for_the_most_batches():
    words = " ".join(told.text(rows(datasets=("MNIST",))).split())
    # Of 800 steps at a rate of 1/200 a record is in 4 on average.
    found = re.search(r"That is (\d+), where the mean is 4\.", words)
    assert found
    assert 15 < int(found[1]) < 30
