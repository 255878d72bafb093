"""Ranges of records: every choice has one form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.errors import DecodeError
from maskedlark.wire import steps

ends = st.lists(st.integers(0, 10**10 - 1), max_size=40, unique=True).map(sorted)


@given(ends)
def test_ranges_come_back_as_they_were(numbers):
    ranges = list(zip(numbers[::2], numbers[1::2], strict=False))
    assert list(steps.decode_ranges(steps.encode_ranges(ranges))) == ranges


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0-",
        "-5",
        "5-5",
        "6-5",
        "0-5,5-9",
        "0-5,3-9",
        "7-9,0-5",
        "0-5,",
        ",0-5",
        "00-5",
        "0-05",
        "+0-5",
        " 0-5",
        "0-5\n",
        "0-\u0665",
        "0-10000000000",
        "0x0-5",
        "0-5;7-9",
        ",".join(f"{2 * i}-{2 * i + 1}" for i in range(steps.MAX_RANGES + 1)),
        "0" * (steps.MAX_TEXT + 1),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(DecodeError):
        steps.decode_ranges(text)


def test_no_text_is_no_range():
    assert steps.decode_ranges("") == ()
