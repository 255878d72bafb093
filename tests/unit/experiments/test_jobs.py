"""Jobs: run in other processes, kept at once, not run again."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import jobs, made, versions
from experiments import rows as tables
from experiments.data.places import NotHere
from experiments.jobs import Job, Needed


def double(job):
    with Path(str(job.settings["log"])).open("a") as log:
        log.write(f"{job.x} {os.getpid()}\n")
    if job.x == job.settings.get("fails"):
        raise NotHere("it is not here")
    return {"y": 2 * job.x + job.seed, "extra": 0.1}


def found_once(number, path):
    with Path(path).open("a") as log:
        log.write(f"{number}\n")
    return {"noise": 10.0 * number}


def with_needs(job):
    return {"y": job.needed()["noise"] + job.seed}


def apart(job):
    raise AssertionError("the group finds it")


def at_once(jobs):
    """All in one call, which says how many they are."""
    return [{"y": 100.0 * len(jobs) + job.x} for job in jobs]


def some(tmp_path, xs=(1.0, 2.0), seeds=(0, 1), **settings):
    given = {"log": str(tmp_path / "log"), **settings}
    return [Job("none", "twice", x, seed, double, given, weight=x) for x in xs for seed in seeds]


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


def test_what_cannot_be_run_here_keeps_its_rows(tmp_path):
    path = tmp_path / "f.csv"
    known = some(tmp_path, (1.0, 2.0, 3.0))
    before = jobs.run(known[:4], path)
    found = jobs.run(known[4:], path, known=known)
    assert [row.x for row in found] == [1, 1, 2, 2, 3, 3]
    assert found[:4] == before
    assert jobs.kept(known, path) == tables.read(path) == found
    assert jobs.run([], path, known=known) == found


def test_a_row_says_by_which_commit_and_its_key_does_not(tmp_path, monkeypatch):
    path = tmp_path / "f.csv"
    for commit, xs in (("first", (1.0,)), ("second", (1.0, 2.0))):
        monkeypatch.setattr(made, "commit", lambda commit=commit: commit)
        found = jobs.run(some(tmp_path, xs), path)
    assert [(row.x, row.more["commit"]) for row in found] == [
        (1, "first"), (1, "first"), (2, "second"), (2, "second")
    ]  # fmt: skip


def test_what_jobs_need_is_found_once(tmp_path):
    log = tmp_path / "needed"
    wanted = [
        Job("none", "s", x, seed, with_needs, needs=Needed(found_once, (x, str(log))))
        for x in (1.0, 2.0)
        for seed in (0, 1)
    ]
    found = jobs.run(wanted, tmp_path / "f.csv")
    assert [row.y for row in found] == [10, 11, 20, 21]
    assert sorted(log.read_text().split()) == ["1.0", "2.0"]
    assert wanted[0].key == Job("none", "s", 1.0, 0, with_needs).key


def test_a_group_is_one_call(tmp_path):
    wanted = [
        Job("none", "s", x, 0, apart, {"of": group}, together=at_once, group=group, alone=alone)
        for group, alone in (("a", False), ("b", True))
        for x in (1.0, 2.0, 3.0)
    ]
    path = tmp_path / "f.csv"
    assert [row.y for row in jobs.run(wanted[1:3], path)] == [202, 203]
    # What was kept is not asked again: the rest of its group goes without.
    assert [row.y for row in jobs.run(wanted, path)] == [101, 202, 203, 301, 302, 303]


def test_a_worker_has_one_thread_before_it_imports_anything(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    (row,) = jobs.run([Job("none", "s", 1.0, 0, threads)], tmp_path / "f.csv")
    assert (row.y, row.number("blas")) == (1, 1)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def threads(job):
    return {"y": float(os.environ["OMP_NUM_THREADS"]), "blas": float(os.environ["OPENBLAS_NUM_THREADS"])}


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


def test_what_another_figure_of_the_folder_has_found_is_not_run_again(tmp_path):
    found = jobs.run(some(tmp_path), tmp_path / "first.csv")
    (tmp_path / "a table of somebody's.csv").write_text("a,b\n1,2\n")
    once = ran(tmp_path)
    assert jobs.run(some(tmp_path), tmp_path / "second.csv") == found
    assert ran(tmp_path) == once


def test_a_row_of_another_version_is_made_again_once(tmp_path, monkeypatch):
    path, once = tmp_path / "f.csv", [1.0, 1.0, 2.0, 2.0]
    first = jobs.run(some(tmp_path), path)
    assert (sorted(ran(tmp_path)), jobs.stale(some(tmp_path), path)) == (once, [])
    monkeypatch.setitem(versions.VERSIONS, "noise", 99)
    assert jobs.stale(some(tmp_path), path) == first
    of_floats = [replace(job, code=()) for job in some(tmp_path, seeds=(7,))]
    for _ in range(2):
        found = jobs.run([*some(tmp_path), *of_floats], path)
    assert sorted(ran(tmp_path)) == sorted([*once, *once, 1.0, 2.0])
    assert {row.more.get("code", "") for row in found} == {"draws 2, engine 1, noise 99", ""}
    monkeypatch.setitem(versions.VERSIONS, "noise", 100)
    assert jobs.stale([*some(tmp_path), *of_floats], path) == found[:4]


def test_a_stale_row_of_another_figure_is_not_taken_for_a_newer_one(tmp_path, monkeypatch):
    jobs.run(some(tmp_path), tmp_path / "a.csv")
    monkeypatch.setitem(versions.VERSIONS, "noise", 99)
    newer = jobs.run(some(tmp_path), tmp_path / "f.csv")
    assert jobs.kept(some(tmp_path), tmp_path / "a.csv") == newer


def test_all_is_run_again_when_asked_for(tmp_path):
    path = tmp_path / "f.csv"
    for is_fresh in (False, False, True):
        jobs.run(some(tmp_path), path, is_fresh=is_fresh)
    assert sorted(ran(tmp_path)) == sorted([1.0, 1.0, 2.0, 2.0] * 2)
