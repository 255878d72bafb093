from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from maskedlark.features.column import Column
from maskedlark.features.exclusions import MIN_ROWS, why_not

MANY = range(60)
A_TEXT, NEARLY, A_NUMBER = (
    "a different text in every row",
    "a different text in nearly every row",
    "a different whole number in every row",
)


def test_what_is_counted_by_is_a_feature_though_its_name_says_id():
    column = Column.of("campaign_id", [f"c{place % 40}" for place in range(400)])
    assert why_not(column) == "40 different ids"
    assert why_not(column, is_key=True) is None
    assert why_not(Column.of("user_id", [f"u{place}" for place in MANY]), is_key=True) == A_TEXT


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("seen", [f"2026-01-{1 + place % 28:02}" for place in MANY], "dates"),
        ("seen", [f"2026-01-02T03:{place:02}:59.5+02:00" for place in MANY], "dates"),
        ("seen", ["31.12.2026 23:59", "", "1/2/26 1:05 PM"], "dates"),
        ("seen", ["3 Jan 2026", None], "dates"),
        ("seen", ["Jan 5, 2026", "February 17 2026", "Mar. 3rd, 2026", "Mon, May 4, 2026 11:05"], "dates"),
        ("seen", ["5. January 2026", "05-Jan-26"], "dates"),
        ("seen", [f"202601{1 + place % 28:02}" for place in MANY], "dates"),
        ("seen", [20260101 + place % 28 for place in MANY], "dates"),
        ("seen", [1_770_000_000 + place for place in MANY], "dates"),
        ("seen", [f"{1_770_000_000_123 + 7 * place}" for place in MANY], "dates"),
        ("seen", [1.77e9 + place / 8 for place in MANY], "dates"),
        ("seen", [date(2026, 1, 1 + place % 28) for place in MANY] + [None], "dates"),
        ("seen", [datetime(2026, 1, 1 + place % 28, tzinfo=UTC) for place in MANY], "dates"),
        ("seen", [time(place % 24) for place in MANY], "dates"),
        ("took", [timedelta(place) for place in MANY], "times between dates; turn them into numbers"),
        ("raw", [bytes([place]) for place in MANY], "neither texts nor numbers"),
        ("user", [f"u{place}" for place in MANY], A_TEXT),
        ("user_id", [f"u{place % 40}" for place in range(400)], "40 different ids"),
        ("user_id", [place % 40 * 1000 for place in range(400)], "40 different ids"),
        ("userId", [f"{place % 40}" for place in range(400)], "40 different ids"),
        ("mail", [f"u{place % 9}@shop.example" for place in range(400)], "9 different ids"),
        ("hash", [f"{place % 9:032x}" for place in range(400)], "9 different ids"),
        ("campaign_id", [f"c{place % 32}" for place in range(400)], None),
        ("region_id", [place % 8 for place in range(400)], None),
        ("valid", [place / 7 % 2 for place in range(400)], None),
        ("price", [Decimal(place) / 4 for place in MANY], None),
        ("views", [20_000_000 + 990 * place for place in MANY], None),
        ("salary", [900_000_000 + 20_000_000 * place for place in MANY], None),
        ("month", ["January", "May"] * 30, None),
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
