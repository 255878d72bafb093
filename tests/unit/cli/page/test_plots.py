import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from maskedlark.cli.demo_steps.results import Campaign
from maskedlark.cli.page import plots
from maskedlark.cli.page.plot import WIDTH, Axis, Plot, dot
from tests.unit.cli.page.cases import MODEL, RECEIPTS, REPORT, VIEWS

DRAWN = {
    "buyers": plots.campaigns(REPORT, "buyers", "Buyers"),
    "auc": plots.curve(MODEL, "auc", "AUC"),
    "calibration": plots.calibration(MODEL),
    "budget": plots.budget(RECEIPTS),
    "bits": plots.bits("bits", "Euros", VIEWS, "euros"),
}


def marks(drawn: str, kind: str) -> list[ElementTree.Element]:
    """AnchorInMemory that have all of these classes."""
    wanted = {"mark", *kind.split()}
    return [
        each for each in ElementTree.fromstring(drawn).iter() if wanted <= set(each.get("class", "").split())
    ]


def texts(drawn: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(drawn).iter("text")]


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_says_what_it_shows_to_who_cannot_see_it(name):
    root = ElementTree.fromstring(DRAWN[name])
    title, says = root.find("title"), root.find("desc")
    assert root.get("role") == "img"
    assert title is not None
    assert says is not None
    assert title.text
    assert says.text
    assert root.get("aria-labelledby", "").split() == [title.get("id"), says.get("id")]


@pytest.mark.parametrize("name", DRAWN)
def test_marks_lie_inside_the_plot(name):
    root = ElementTree.fromstring(DRAWN[name])
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert width == WIDTH
    for each in root.iter():
        if "mark" in each.get("class", "").split() and each.get("d"):
            for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", each.get("d", "")):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def test_a_campaign_has_its_interval_and_truth_and_a_hidden_one_says_why():
    drawn = DRAWN["buyers"]
    assert len(marks(drawn, "dot private circle")) == len(marks(drawn, "whisker private")) == 2
    assert len(marks(drawn, "dot truth diamond")) == 2
    assert len(marks(drawn, "bar withheld")) == 1
    assert {"autumn", "spring", "summer", "withheld: fewer than 100 records"} <= set(texts(drawn))
    said = [each.findtext("title") for each in marks(drawn, "dot private")]
    assert said[0] == "autumn: 110, 104 to 116"


def test_noise_may_carry_an_interval_below_0():
    [autumn, spring] = marks(DRAWN["buyers"], "whisker private")
    low, zero = _left(spring), float(_grid(DRAWN["buyers"])["0"])
    assert low < zero < _left(autumn)


def _grid(drawn: str) -> dict[str, str]:
    """Where the words along the axes stand."""
    found = ElementTree.fromstring(drawn).iter("text")
    return {each.text or "": each.get("x", "") for each in found if each.get("class") == "tick"}


def test_a_report_may_hide_nothing_or_everything():
    none, all_ = replace(REPORT, hidden=()), replace(REPORT, campaigns=())
    assert not marks(plots.campaigns(none, "buyers", "Buyers"), "bar withheld")
    assert len(marks(plots.campaigns(all_, "euros", "Euros"), "bar withheld")) == 1


def test_a_name_cannot_break_out():
    rude = '</text><script>alert("x")</script>'
    named = replace(REPORT, campaigns=(Campaign(rude, *[REPORT.campaigns[0].buyers] * 2),), hidden=(rude,))
    drawn = plots.campaigns(named, "buyers", "Buyers")
    assert "<script" not in drawn
    assert texts(drawn).count(rude) == 2


def test_a_curve_has_both_figures_of_every_point():
    drawn = DRAWN["auc"]
    places = {
        kind: [_left(each) for each in marks(drawn, f"dot {kind}")] for kind in ("private", "coalition")
    }
    assert [len(found) for found in places.values()] == [3, 3]
    assert all(alone <= together + 1 for alone, together in zip(*places.values(), strict=True))
    [fitted] = marks(drawn, "dot fitted")
    assert min(places["private"]) < _left(fitted) < max(places["private"])
    assert {"mark line clear", "mark line guess"} <= {each.get("class") for each in marks(drawn, "line")}


def _left(mark: ElementTree.Element) -> float:
    [x] = re.findall(r"^M(-?[\d.]+)", mark.get("d", ""))
    return float(x)


def test_calibration_has_a_mark_and_a_whisker_a_bucket():
    drawn = DRAWN["calibration"]
    assert len(marks(drawn, "dot private")) == len(marks(drawn, "whisker private")) == 2
    assert len(marks(drawn, "dot fitted")) == 2
    assert len(marks(drawn, "dot clear")) == 1


def test_bars_of_the_budget_are_what_was_charged_end_to_end():
    bars = [each for kind in ("first", "second", "third") for each in marks(DRAWN["budget"], f"bar {kind}")]
    assert len(bars) == 6
    [allowed] = marks(DRAWN["budget"], "bar allowed")
    unit = float(allowed.get("width", 0)) / RECEIPTS.allowed
    widths = [float(each.get("width", 0)) / unit for each in bars]
    assert widths == pytest.approx([1.33, 1.33, 1.0, 1.0, 2.0, 4.17], abs=0.02)


def test_bits_are_those_of_the_bytes():
    paths = marks(DRAWN["bits"], "bit known one")
    assert len(paths) == 1
    assert paths[0].get("d", "").count("M") == (90).bit_count()
    everyone = marks(DRAWN["bits"], "bit")
    assert sum(each.get("d", "").count("M") for each in everyone) == 64 * len(VIEWS)


def test_every_shape_is_another():
    shapes = [dot("private", shape, 10, 10).split('d="')[1].split('"')[0] for shape in _SHAPES]
    assert len(set(shapes)) == len(_SHAPES)


_SHAPES = ("circle", "square", "diamond")


def test_whiskers_across_have_caps_up_and_whiskers_up_have_caps_across():
    plot = Plot("p", "t", "s", Axis.numbers("", 0, 10), Axis.numbers("", 0, 10))
    plot.whisker("private", (1, 5), (9, 5))
    plot.whisker("private", (5, 1), (5, 9))
    across, up = (
        re.findall(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", each.get("d", ""))
        for each in marks(plot.svg(), "whisker")
    )
    assert across[0][1] == across[0][3]
    assert across[1][0] == across[1][2]
    assert up[0][0] == up[0][2]
    assert up[1][1] == up[1][3]
