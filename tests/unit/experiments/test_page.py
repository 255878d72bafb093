"""The page: every figure with its words, its command and what made it."""

from types import SimpleNamespace

import pytest

from experiments import figures, made, page, versions
from experiments import rows as tables
from experiments.jobs import Job, _row
from experiments.size import Size


def one(job):
    return {"y": 1.0}


def commit(job):
    """Of two commits: as after a run that was carried on."""
    row = _row(job, one(job), 0.1)
    of = {"commit": "abc" if job.seed else "def with changes", "code": versions.named(job.code)}
    return row._replace(more={**row.more, **of})


@pytest.fixture
def shown(monkeypatch, tmp_path):
    def jobs(size):
        return [Job("D", "s", 1.0, seed, one, {"size": size.value}) for seed in size.seeds]

    figure = SimpleNamespace(NAME="f", TITLE="A title", jobs=jobs, text=lambda rows: f"{len(rows)} rows.")
    monkeypatch.setattr(figures, "NAMES", ("other", "f"))
    monkeypatch.setattr(figures, "load", lambda name: figure)

    def write(size):
        tables.write(tmp_path / "f.csv", [commit(job) for job in jobs(size)])
        made.write(tmp_path, "f", size, ["f.svg", "g.svg"], ["away"])
        return page.write(tmp_path, size).read_text()

    return write


def test_a_section_has_plots_words_and_command(shown):
    found = shown(Size.DEFAULT)
    assert "## 2. A title\n\n![A title](f.svg)\n\n![A title](g.svg)\n\n3 rows.\n\n" in found
    assert "Made by `maskedlark experiment f`: 3 runs, seeds 0 to 2," in found
    assert "[f.csv](f.csv)" in found
    assert "Left out, since it was not there: away." in found
    assert "other" not in found.split("## 2.")[1]
    assert "By commits def with changes, abc, on " in found
    assert "quick look" not in found


def test_stale_runs_are_said_above_all_else(shown, monkeypatch, tmp_path):
    assert "Stale" not in shown(Size.DEFAULT)
    monkeypatch.setitem(versions.VERSIONS, "noise", 99)
    found = page.write(tmp_path, Size.DEFAULT).read_text()
    assert "## 2. A title\n\n**Stale: 3 of 3 runs were made by versions" in found


def test_a_quick_look_says_so(shown):
    found = shown(Size.QUICK)
    assert "**This is a quick look" in found
    assert "maskedlark experiment f --quick" in found


def test_rows_of_another_size_are_not_shown(shown, tmp_path):
    shown(Size.QUICK)
    assert "## " not in page.write(tmp_path, Size.FULL).read_text()


def test_the_machine_is_described_and_not_named():
    assert "cores of" in made.machine()
    assert "/" not in made.commit()


def test_a_figure_whose_library_is_gone_keeps_its_plots(shown, monkeypatch):
    def load(name):
        raise ModuleNotFoundError("no module named torch", name="torch")

    shown(Size.DEFAULT)
    monkeypatch.setattr(figures, "load", load)
    found = shown(Size.DEFAULT)
    assert "Drawn earlier ([f.svg](f.svg), [g.svg](g.svg)); its words need torch, which is not here." in found
