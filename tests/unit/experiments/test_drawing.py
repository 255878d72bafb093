"""Plots: named axes, text as text, the same bytes for the same rows."""

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib")

from experiments import drawing
from experiments.authors import Point
from experiments.rows import Mean, Median


def drawn(path, points):
    figure = drawing.panels(["left", "right"], ["log ε", "records"], ["accuracy (%)", "bytes"])
    for axes in figure.axes:
        drawing.ours(axes, points, 0, "ours")
        drawing.faint(axes, points, 1)
        drawing.authors(axes, [Point("f", "d", "", 1.0, 2.0, "")], 0, "theirs")
        axes.legend()
    drawing.save(figure, path)
    return path.read_bytes()


@pytest.mark.parametrize(
    "points", [[Mean(1.0, 50.0, 2.0, 3), Mean(2.0, 60.0, 1.0, 3)], [Median(1.0, 5.0, 1.0, 6.0, 9)]]
)
def test_a_plot_holds_its_words(tmp_path, points):
    found = drawn(tmp_path / "a.svg", points)
    words = {
        "".join(each.itertext()).strip() for each in ET.fromstring(found).iter() if each.tag.endswith("text")
    }
    assert {"left", "right", "log ε", "records", "accuracy (%)", "bytes", "ours", "theirs"} <= words
    assert drawn(tmp_path / "b.svg", points) == found


def test_bars_reach_from_quartile_to_quartile():
    assert drawing._reach(Median(1.0, 5.0, 1.0, 6.0, 9)) == (4.0, 1.0)
    assert drawing._reach(Mean(1.0, 5.0, 2.0, 3)) == (2.0, 2.0)


def test_no_two_series_share_colour_or_marker():
    assert len(set(drawing.COLOURS)) == len(set(drawing.MARKERS)) == len(drawing.DASHES) == 7
