import pytest

from maskedlark.features.column import Column
from maskedlark.features.exclusions import MIN_ROWS, why_not

MANY = range(60)
A_TEXT, NEARLY, A_NUMBER = (
    "another text in every row",
    "another text in nearly every row",
    "another whole number in every row",
)


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("seen", [f"2026-01-{1 + place % 28:02}" for place in MANY], "dates"),
        ("seen", [f"2026-01-02T03:{place:02}:59.5+02:00" for place in MANY], "dates"),
        ("seen", ["31.12.2026 23:59", "", "1/2/26 1:05 PM"], "dates"),
        ("seen", ["3 Jan 2026", None], "dates"),
        ("user", [f"u{place}" for place in MANY], A_TEXT),
        ("user", [f"u{place // 2 if place < 4 else place}" for place in MANY], NEARLY),
        ("row", [*MANY], A_NUMBER),
        ("user_id", [place * 1000 for place in MANY], A_NUMBER),
        ("userId", [str(place * 1000) for place in MANY], A_NUMBER),
        ("cents", [place * 1000 for place in MANY], None),
        ("score", [place / 7 for place in MANY], None),
        ("age", [place % 40 for place in MANY], None),
        ("name", [f"u{place}" for place in range(MIN_ROWS - 1)], None),
        ("version", ["1.2.3", "10.4"] * 30, None),
        ("day", ["monday", "friday"] * 30, None),
        ("nothing", [None] * 60, None),
    ],
)
def test_dates_and_what_names_a_row_are_no_features(name, cells, why):
    assert why_not(Column.of(name, cells)) == why
