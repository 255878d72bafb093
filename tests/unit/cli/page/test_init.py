import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from maskedlark.cli import page
from maskedlark.cli.demo_steps.results import AttackResult, Campaign
from maskedlark.cli.page.sections import NO_MODEL
from tests.unit.cli.page.cases import REPORT, RESULTS

PAGE = page.render(RESULTS)


class Reader(HTMLParser):
    """Which elements are open at the end, what refers to anything, and all words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.refers: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []
        self.labels += (given.get("aria-labelledby") or "").split()
        self.refers += [given[name] for name in ("href", "src", "xlink:href", "action") if given.get(name)]
        assert tag != "script"
        assert not [name for name in given if name.startswith("on")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_and_refers_to_nothing_outside():
    read = Reader(PAGE)
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    assert set(read.labels) <= set(read.ids)
    assert all(each.startswith("data:") for each in read.refers)
    assert "url(" not in PAGE
    assert "@import" not in PAGE
    assert "default-src 'none'" in PAGE.replace("&#x27;", "'")


def test_it_has_every_section_and_number():
    words = " ".join(" ".join(Reader(PAGE).words).replace("\N{NO-BREAK SPACE}", " ").split())
    for section in ("report", "model", "calibration", "party-views", "receipts", "attacks"):
        assert f'id="{section}"' in PAGE
    for shown in (
        "110 (104 to 116)",
        "Withheld: summer, of fewer than k = 100 records",
        "fitted from one release in 2 s: ε = 1 against everybody",
        "ε = 2 against the ad server alone, 4.17 against it with all helpers but one",
        "\N{MINUS SIGN}0.015 ± 0.024",
        "finds no state",
        "1b59e5c4fb76579b",
        "ε = 4.33 of 8",
        "maskedlark demo --users 3000 --helpers 2",
    ):
        assert shown in words


@pytest.mark.parametrize("advantage", [-0.0001, -0.0, 0.0004])
def test_an_advantage_that_rounds_to_nothing_has_no_sign(advantage):
    attacks = (replace(RESULTS.attacks[0], ours=AttackResult(advantage, 0.024)), *RESULTS.attacks[1:])
    words = Reader(page.render(replace(RESULTS, attacks=attacks))).words
    assert "0.000" in words, "the tile"
    assert "0.000 ± 0.024" in words, "the table"
    assert not re.search(r"[-+\N{MINUS SIGN}]0\.000\b", " ".join(words))


def test_a_curve_that_goes_up_and_down_is_explained():
    words = " ".join(" ".join(Reader(PAGE).words).split())
    assert "Log-loss rises between the first steps, as it does without noise: momentum carries" in words
    assert "a point shows what a run that ends there would have cost" in words


def test_without_a_model_the_page_says_what_to_install():
    without = replace(
        RESULTS, model=None, receipts=replace(RESULTS.receipts, chain=RESULTS.receipts.chain[:2])
    )
    read = Reader(page.render(without))
    assert read.words.count(NO_MODEL) == 2
    assert "pip install 'maskedlark[train]'" in NO_MODEL
    assert "plot-auc" not in read.ids
    assert {"plot-buyers", "plot-budget", "plot-euros-bits"} <= set(read.ids)


def test_a_report_that_hides_nothing_says_so():
    words = " ".join(Reader(page.render(replace(RESULTS, report=replace(REPORT, hidden=())))).words)
    assert "No campaign is withheld" in words
    assert "campaigns withheld" in words


def test_nothing_that_was_found_can_break_out():
    rude = "<img src=x onerror=alert(1)>"
    named = replace(REPORT, campaigns=(Campaign(rude, *[REPORT.campaigns[0].buyers] * 2),), hidden=(rude,))
    views = tuple(replace(each, party=rude, reads=(rude,)) for each in RESULTS.party_views)
    read = Reader(page.render(replace(RESULTS, report=named, party_views=views, version=rude)))
    assert read.open == []
    assert rude in " ".join(read.words)


def test_it_is_written_as_utf_8(tmp_path):
    page.write(tmp_path / "page.html", RESULTS)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == PAGE


def light(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_the_paper_and_text_can_be_read(place):
    block = re.findall(r":root \{([^}]*)\}", PAGE)[place]
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
    for text in ("ink", "soft", "private"):
        assert contrast(colours[text], colours["paper"]) >= 4.5
    for text in ("ink", "soft"):
        assert contrast(colours[text], colours["card"]) >= 4.5
    for mark in ("private", "truth", "coalition", "clear", "guess"):
        assert contrast(colours[mark], colours["paper"]) >= 3
