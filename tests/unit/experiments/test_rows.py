"""Rows: written whole, read as they were, averaged over seeds."""

import pytest

from experiments import rows as tables
from experiments.rows import Mean, Median, Row


def row(x, seed, y, series="a", **more):
    return Row(f"{series}{x}{seed}", "D", series, x, seed, y, 1.5, {k: str(v) for k, v in more.items()})


def test_a_file_gives_back_what_was_written(tmp_path):
    found = [row(0.1, 0, 1 / 3, bound=2.0), row(0.1, 1, 2.0, "b", name="with, comma")]
    tables.write(tmp_path / "f.csv", found)
    assert tables.read(tmp_path / "f.csv") == found
    assert (tmp_path / "f.csv").read_text().startswith("dataset,series,x,seed,y,bound,name,seconds,key\n")
    assert [path.name for path in tmp_path.iterdir()] == ["f.csv"]
    assert tables.read(tmp_path / "none.csv") == []


def test_points_over_seeds():
    found = [row(2.0, 0, 5.0), row(1.0, 0, 1.0), row(1.0, 1, 3.0), row(1.0, 2, 8.0), row(1.0, 0, 9.0, "b")]
    one, two = tables.means(found, "D", "a")
    assert one == Mean(1.0, 4.0, one.deviation, 3)
    assert one.deviation == pytest.approx(13**0.5)
    assert two == Mean(2.0, 5.0, 0.0, 1)
    assert tables.medians(found, "D", "a")[0] == Median(1.0, 3.0, 2.0, 5.5, 3)
    assert tables.names(found, "D") == ["a", "b"]
    assert tables.means(found, "other", "a") == []
