"""The demo's page as a browser shows it: on a desk and on a phone, by day and by night.

Opened in Debian's Chromium, which `.ci/run` installs; where there is none, tests are skipped, and say so.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.playing import Played, played

DESK, PHONE = 1280, 390
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_BOXES = """
const box = each => { const r = each.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
return [...document.querySelectorAll("svg.plot")].map(plot => ({
    id: plot.id,
    box: box(plot),
    marks: [...plot.querySelectorAll(".mark")].map(each => ({
        kind: each.getAttribute("class"), box: box(each), seen: each.checkVisibility({opacityProperty: true}),
        colours: [getComputedStyle(each).fill, getComputedStyle(each).stroke],
    })),
    texts: [...plot.querySelectorAll("text")].map(each => ({words: each.textContent, box: box(each)})),
}));
"""
_ENDS = """
return [...document.querySelectorAll("table, p, li")].map(each => each.getBoundingClientRect().right);
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, worker_id) -> Played:
    return played(tmp_path_factory, worker_id)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Any]:
    """A headless Chromium that writes down what it fetches and what its console says."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(
            "no Chromium here (Debian: apt-get install chromium chromium-driver): the page is not opened"
        )
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for each in (*_OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options, Service(driver))
    yield opened
    opened.quit()


def shown(chromium: Any, page: Path, width: int, scheme: str = "light") -> list[dict[str, Any]]:
    """Open the page so wide; return where all parts of its plots are."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chromium.get(page.as_uri())
    found: list[dict[str, Any]] = chromium.execute_script(_BOXES)
    return found


def wanted(figures: dict[str, Any]) -> dict[str, dict[str, int]]:
    """How many marks of which kinds every plot must have, by what the demo found."""
    rows, hidden = len(figures["report"]["campaigns"]), len(figures["report"]["hidden"])
    model, views = figures["model"], len(figures["party_views"])
    points = len(model["points"])
    campaigns = {"dot private": rows, "whisker private": rows, "dot truth": rows, "bar withheld": hidden}
    curve = {
        "dot private": points,
        "dot coalition": points,
        "dot fitted": 1,
        "line clear": 1,
        "line guess": 1,
    }
    judged = {"private": model["private"], "clear": model["clear"], "fitted": model["fit"]["judged"]}
    buckets = {kind: len(each["calibration"]) for kind, each in judged.items()}
    calibration = {f"{mark} {kind}": count for kind, count in buckets.items() for mark in ("dot", "whisker")}
    bits = {"bit one": views, "bit zero": views}
    return {
        **dict.fromkeys(("plot-buyers", "plot-euros"), campaigns),
        **dict.fromkeys(("plot-auc", "plot-loss"), curve),
        "plot-calibration": {**calibration, "line guess": 1},
        **dict.fromkeys(("plot-euros-bits", "plot-label-bits"), bits),
        "plot-budget": {"bar first": 2, "bar second": 2, "bar third": 2, "bar allowed": 1},
    }


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_drawn_with_all_its_marks_inside(chromium, run, width, scheme):
    plots = {each["id"]: each for each in shown(chromium, run.page, width, scheme)}
    needed = wanted(run.figures)
    assert plots.keys() == needed.keys()
    paper = chromium.execute_script("return getComputedStyle(document.body).backgroundColor")
    for name, kinds in needed.items():
        left, top, right, bottom = plots[name]["box"]
        assert right - left >= 0.33 * min(width, 992)
        assert bottom - top >= 100
        for kind, count in kinds.items():
            found = [each for each in plots[name]["marks"] if set(kind.split()) <= set(each["kind"].split())]
            assert len(found) == count, f"{name}: {kind}"
        for mark in plots[name]["marks"]:
            assert mark["seen"]
            assert set(mark["colours"]) - {"none", paper}, f"{name}: {mark['kind']} has the paper's colour"
            assert is_inside(mark["box"], plots[name]["box"]), f"{name}: {mark['kind']} is cut"


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_no_word_of_a_plot_is_cut_tiny_or_over_another(chromium, run, width):
    for plot in shown(chromium, run.page, width):
        texts = [each for each in plot["texts"] if each["words"]]
        assert texts
        for place, text in enumerate(texts):
            assert is_inside(text["box"], plot["box"]), f"{plot['id']}: {text['words']} is cut"
            assert text["box"][3] - text["box"][1] >= 11, f"{plot['id']}: {text['words']} is tiny"
            for other in texts[:place]:
                apart = not overlap(text["box"], other["box"])
                assert apart, f"{plot['id']}: {text['words']} is over {other['words']}"


def is_inside(inner: list[float], outer: list[float]) -> bool:
    low = all(a >= b - 1 for a, b in zip(inner[:2], outer[:2], strict=True))
    return low and all(a <= b + 1 for a, b in zip(inner[2:], outer[2:], strict=True))


def overlap(one: list[float], other: list[float]) -> bool:
    """By more than a pixel: a line's box is higher than its letters."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return across > 1 and down > 3


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_nothing_is_wider_than_the_screen_and_tables_open(chromium, run, width):
    shown(chromium, run.page, width)
    for is_open in ("false", "true"):
        chromium.execute_script(
            f"document.querySelectorAll('details').forEach(each => each.open = {is_open})"
        )
        assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
        assert max(chromium.execute_script(_ENDS)) <= width


def test_by_night_the_paper_is_dark(chromium, run):
    colours = []
    for scheme in ("light", "dark"):
        shown(chromium, run.page, DESK, scheme)
        script = "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
        colours.append(sum(chromium.execute_script(script)))
    assert colours[0] > 3 * 240
    assert colours[1] < 3 * 40


def test_the_console_is_silent_and_nothing_is_fetched(chromium, run):
    chromium.get_log("performance")  # What other tests did.
    shown(chromium, run.page, DESK)
    assert chromium.get_log("browser") == []
    events = [json.loads(each["message"])["message"] for each in chromium.get_log("performance")]
    asked = [
        each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"
    ]
    assert run.page.as_uri() in asked, "it can see what is fetched"
    assert [each for each in asked if not each.startswith(("data:", run.page.as_uri()))] == []
