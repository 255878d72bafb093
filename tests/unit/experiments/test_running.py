"""Running figures: what is missing is said in one line, and the rest runs."""

from types import SimpleNamespace

import pytest

from experiments import data, figures, running
from experiments import rows as tables
from experiments.data.places import NotHere
from experiments.jobs import Job
from experiments.size import Size


def one(job):
    return {"y": 1.0}


def needing(job):
    raise NotHere("a thing is needed: get it")


def broken(job):
    raise ValueError("two\nlines")


def figure(name, datasets, way=one):
    def draw(rows, out):
        (out / f"{name}.svg").write_text(" ".join(row.dataset for row in rows))
        return [f"{name}.svg"]

    return SimpleNamespace(
        NAME=name,
        TITLE=f"Title of {name}",
        jobs=lambda size: [Job(each, "s", 1.0, seed, way) for each in datasets for seed in size.seeds],
        draw=draw,
        text=lambda rows: f"Text of {name}, {len(rows)} rows.",
    )


@pytest.fixture
def made(monkeypatch):
    """Figures of data that is here, and of data and libraries that are not."""
    known = {
        "good": figure("good", ["here"]),
        "half": figure("half", ["here", "away"]),
        "none": figure("none", ["away"]),
        "late": figure("late", ["here"], needing),
    }

    def load(name):
        if name == "library":
            raise ModuleNotFoundError("No module named 'thing'", name="thing")
        return known[name]

    def check(dataset):
        if dataset == "away":
            raise NotHere("away.csv is needed: put it somewhere")

    monkeypatch.setattr(figures, "NAMES", (*known, "library"))
    monkeypatch.setattr(figures, "load", load)
    monkeypatch.setattr(data, "check", check)
    return known


def test_all_runs_what_it_can_and_says_the_rest(made, tmp_path):
    said: list[str] = []
    assert running.main(["all"], Size.DEFAULT, tmp_path, said.append) == 0
    assert said[:-1] == [
        "half goes without away: away.csv is needed: put it somewhere",
        "none goes without away: away.csv is needed: put it somewhere",
        "late is left out: a thing is needed: get it",
        said[3],
    ]
    assert said[3].startswith("library is left out: it needs thing; install")
    assert "good, half" in said[-1]
    assert not any("\n" in line for line in said)
    assert (tmp_path / "half.svg").read_text() == "here here here"
    page = (tmp_path / "README.md").read_text()
    assert "## 1. Title of good" in page
    assert "Text of half, 3 rows." in page
    assert "Left out, since it was not there: away." in page
    assert "none" not in page
    assert len(tables.read(tmp_path / "good.csv")) == 3


def test_a_figure_that_fails_is_one_line_and_the_rest_runs(made, monkeypatch, tmp_path):
    made["good"], made["half"] = figure("good", ["here"], broken), figure("half", ["here"])
    said: list[str] = []
    assert running.main(["good", "half"], Size.QUICK, tmp_path, said.append) == 1
    assert said[0] == "good failed, and what it had found is kept: ValueError: two lines"
    assert "half" in said[-1]
    assert "Text of half" in (tmp_path / "README.md").read_text()


def test_rows_of_data_that_is_gone_stay_and_plot_and_page_agree(made, monkeypatch, tmp_path):
    said: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(data, "check", lambda dataset: None)
        running.main(["half"], Size.QUICK, tmp_path, said.append)
    before = (tmp_path / "half.csv").read_text()
    assert running.main(["half"], Size.QUICK, tmp_path, said.append) == 0
    assert "half goes without away: away.csv is needed: put it somewhere" in said
    assert (tmp_path / "half.csv").read_text() == before
    assert (tmp_path / "half.svg").read_text() == "here away"
    page = (tmp_path / "README.md").read_text()
    assert "Text of half, 2 rows." in page
    assert "Left out" not in page


def test_a_series_without_its_library_is_one_line(made, tmp_path):
    made["none"].jobs = lambda size: [
        Job("here", "s", 1.0, 0, one), Job("here", "Opacus", 1.0, 0, one, library="no_such_library")
    ]  # fmt: skip
    said: list[str] = []
    assert running.main(["none"], Size.QUICK, tmp_path, said.append) == 0
    assert said[0].startswith("none goes without Opacus: it needs no_such_library; install")
    assert "Left out, since it was not there: Opacus." in (tmp_path / "README.md").read_text()


def test_a_figure_that_needs_what_is_not_here_fails_alone(made, tmp_path):
    said: list[str] = []
    assert running.main(["none"], Size.QUICK, tmp_path, said.append) == 1
    assert len(said) == 1
    assert not (tmp_path / "README.md").exists()


def test_an_unknown_figure_is_named(made, tmp_path):
    said: list[str] = []
    assert running.main(["bad"], Size.QUICK, tmp_path / "out", said.append) == 2
    assert said == ["there is no figure bad; there are good, half, none, late, library, and all"]
    assert not (tmp_path / "out").exists()


def test_the_real_figures_plan_without_data(monkeypatch, tmp_path):
    monkeypatch.setenv("MASKEDLARK_DATA", str(tmp_path))
    for name in ("global_dp", "local_dp"):
        found = figures.load(name)
        sizes = [len(found.jobs(size)) for size in Size]
        assert sizes[0] < sizes[1] < sizes[2]
        assert name == found.NAME
