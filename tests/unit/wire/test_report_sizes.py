"""What a report costs with checks and without, as docs/VALIDITY.md has it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.wire.report import ReportLayout

ORIGIN = "ads.example"
PAGE = Path(__file__).parents[3] / "docs" / "VALIDITY.md"
DECLARED: dict[str, Measure | Model] = {
    "a binary label, 100 byte features": Model("m", (Bytes(100),)),
    "ten classes, 784 byte features": Model("m", (Bytes(784),), (LabelSpace.categorical(10),)),
    "a real label in 100 buckets, 100 byte features": Model(
        "m", (Bytes(100),), (LabelSpace.reals(0, 100, 100),)
    ),
    "the count and one value of 0 … 255, one key": Measure(("city",), (Value("v", 0, 255),)),
    "the count and one value of 0 … 50,000, two keys": Measure(("city", "shop"), (Value("v", 0, 50_000),)),
    "the same with a second value of −300 … 300": Measure(  # noqa: RUF001 - as on the page
        ("city", "shop"), (Value("v", 0, 50_000), Value("w", -300, 300))
    ),
}
VERSION_1 = {
    "a binary label, 100 byte features": 763,
    "the same with a second value of −300 … 300": 831,  # noqa: RUF001 - as on the page
}
"""Bytes of a report of version 1 that declares the same: what `wire.batch.seal` made at commit fb61212, for
this origin, two helpers, and hour 498456."""


def rows() -> dict[str, list[int]]:
    """The numbers of the page's table, by what is declared."""
    lines = [
        re.split(r" *\| *", line.strip("| \n"))
        for line in PAGE.read_text().splitlines()
        if line.count("|") == 7
    ]
    found = {
        name: [int(re.sub(r"\D", "", each)) for each in rest] for name, *rest in lines if name in DECLARED
    }
    assert found.keys() == DECLARED.keys()
    return found


def size(declared: Measure | Model) -> int:
    return ReportLayout(ORIGIN, bytes(32), ("helper-0", "helper-1"), (declared,)).size


@pytest.mark.parametrize("name", DECLARED)
def test_a_report_costs_what_the_page_says(name):
    plain, checked = DECLARED[name], replace(DECLARED[name], checked=True)
    counted = [checked.points(), plain.carried(), checked.carried(), size(plain), size(checked)]
    assert counted == rows()[name]


@pytest.mark.parametrize("name", VERSION_1)
def test_a_report_without_checks_is_no_larger_than_one_of_version_1(name):
    assert size(DECLARED[name]) <= VERSION_1[name]
