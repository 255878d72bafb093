from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from maskedlark.cli.page.markup import minus, shown
from maskedlark.cli.page.plot import Axis, beyond, tenths, ticks

NUMBERS = st.floats(-1e6, 1e6)


@given(low=NUMBERS, width=st.floats(1e-3, 1e6), most=st.integers(2, 10))
def test_ticks_are_few_round_and_evenly_apart(low, width, most):
    high = low + width
    assume(high - low > width / 2)
    found = ticks(low, high, most)
    slack = 1e-6 * (abs(low) + width)
    assert all(low - slack <= each <= high + slack for each in found)
    assert len(found) <= most + 1
    steps = [after - before for before, after in pairwise(found)]
    assert steps == pytest.approx(steps[:1] * len(steps), abs=slack)


@given(high=st.floats(1e-3, 1e6), most=st.integers(2, 10))
def test_an_axis_ends_at_a_tick_that_nothing_is_over(high, most):
    end = beyond(high, most)
    assert high * (1 - 1e-6) <= end <= 2 * high
    step = ticks(0, high, most)[1]
    assert end / step == pytest.approx(round(end / step), abs=1e-6)


def test_ticks_that_everybody_would_choose():
    assert ticks(0, 250, 5) == [0, 50, 100, 150, 200, 250]
    assert ticks(0.5, 0.9, 5) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert beyond(237, 5) == 250
    assert beyond(4.17, 5) == 5


def test_tenths_hold_all_of_them():
    assert tenths([0.5, 0.83, 0.61]) == (0.5, 0.9)
    assert tenths([0.48, 0.693]) == (0.4, 0.7)
    assert tenths([0.5]) == (0.5, 0.6)


def test_an_axis_goes_both_ways():
    axis = Axis("", 0, 10, [])
    assert [axis.place(each, 200, 100) for each in (0, 5, 10)] == [200, 150, 100]
    assert axis.place(5, 100, 200) == 150
    with pytest.raises(AssertionError):
        Axis.numbers("", 1, 1)


def test_numbers_as_they_are_shown():
    assert [shown(each) for each in (0, 0.5, 25000, -1314)] == ["0", "0.5", "25,000", minus("-1,314")]
    assert minus("-1") == "\N{MINUS SIGN}1"
