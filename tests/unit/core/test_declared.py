import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.declared import Measure, Value
from maskedlark.errors import NotDeclared

BOTH = np.array([True, False])


def test_count_comes_first_and_a_fake_counts_for_nothing():
    measure = Measure(("campaign",), (Value("profit", -5, 9), Value("bought", 0, 1)))
    assert measure.secrets() == 3
    assert measure.lift([[-5, -5], [1, 1]], BOTH).tolist() == [[1, field.P - 5, 1], [0, 0, 0]]


def test_zero_is_always_possible():
    assert Value("price", 10, 20).lift([0, 15], np.array([True, True])).tolist() == [0, 15]


@pytest.mark.parametrize("values", [[21, 0], [-1, 0], [1.5, 0], [float("nan"), 0]])
def test_values_outside_their_bounds_are_refused(values):
    with pytest.raises(NotDeclared):
        Value("price", 10, 20).lift(values, BOTH)


def test_declarations_that_make_no_sense_are_refused():
    with pytest.raises(NotDeclared, match="low <= high"):
        Value("price", 2, 1)
    with pytest.raises(NotDeclared, match="low <= high"):
        Value("price", 0, field.P)
    with pytest.raises(NotDeclared, match="1 values are declared"):
        Measure((), (Value("price", 0, 1),)).lift([], BOTH)
