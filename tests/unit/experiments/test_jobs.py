"""Jobs: run in other processes, kept at once, not run again."""

import os
from pathlib import Path

import pytest

from experiments import jobs
from experiments import rows as tables
from experiments.data.places import NotHere
from experiments.jobs import Job


def double(job):
    with Path(str(job.settings["log"])).open("a") as log:
        log.write(f"{job.x} {os.getpid()}\n")
    if job.x == job.settings.get("fails"):
        raise NotHere("it is not here")
    return {"y": 2 * job.x + job.seed, "extra": 0.1}


def some(tmp_path, xs=(1.0, 2.0), **settings):
    given = {"log": str(tmp_path / "log"), **settings}
    return [Job("none", "twice", x, seed, double, given, weight=x) for x in xs for seed in (0, 1)]


def ran(tmp_path):
    log = tmp_path / "log"
    return [float(line.split()[0]) for line in log.read_text().splitlines()] if log.exists() else []


def test_rows_come_in_the_jobs_order_and_are_kept(tmp_path):
    path = tmp_path / "f.csv"
    told: list[float] = []
    found = jobs.run(some(tmp_path), path, told.append)
    assert [(row.x, row.seed, row.y) for row in found] == [(1, 0, 2), (1, 1, 3), (2, 0, 4), (2, 1, 5)]
    assert tables.read(path) == found
    assert found[0].number("extra") == 0.1
    assert sum(told) == 6
    pids = {line.split()[1] for line in (tmp_path / "log").read_text().splitlines()}
    assert str(os.getpid()) not in pids
    assert jobs.kept(some(tmp_path), path) == found


def test_what_was_found_is_not_run_again_and_other_settings_are_dropped(tmp_path):
    path = tmp_path / "f.csv"
    jobs.run(some(tmp_path, (1.0,)), path)
    jobs.run(some(tmp_path, (1.0, 3.0)), path)
    assert ran(tmp_path) == [1, 1, 3, 3]
    found = jobs.run(some(tmp_path, (1.0,), other=5), path)
    assert ran(tmp_path) == [1, 1, 3, 3, 1, 1]
    assert tables.read(path) == found
    assert {row.more["other"] for row in found} == {"5"}


def test_a_run_that_fails_keeps_what_was_done(tmp_path):
    path = tmp_path / "f.csv"
    with pytest.raises(NotHere, match="not here"):
        # The longest go first, and alone means after all others.
        jobs.run(
            [
                *some(tmp_path),
                Job(
                    "none", "twice", 9.0, 0, double, {"log": str(tmp_path / "log"), "fails": 9.0}, alone=True
                ),
            ],
            path,
        )
    assert len(tables.read(path)) == 4


def test_a_key_is_of_all_that_decides(tmp_path):
    (job, *_) = some(tmp_path)
    same = Job(job.dataset, job.series, job.x, job.seed, job.run, dict(job.settings), weight=99, alone=True)
    assert job.key == same.key
    for name, value in {
        "dataset": "x",
        "series": "x",
        "x": 5.0,
        "seed": 5,
        "settings": {},
        "run": test_a_key_is_of_all_that_decides,
    }.items():
        changed = {
            **{each: getattr(job, each) for each in ("dataset", "series", "x", "seed", "run", "settings")},
            name: value,
        }
        assert Job(**changed).key != job.key, name
