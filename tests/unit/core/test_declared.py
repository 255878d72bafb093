import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.declared import Bytes, Measure, Model, Value
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


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Value("count", 0, 1), "another"),
        (lambda: Measure(("a", "a"), ()), "different names"),
        (lambda: Measure((), (Value("v", 0, 1),) * 2), "different names"),
        (lambda: Measure(("",), ()), "1 to 64 bytes"),
        (lambda: Measure(tuple(map(str, range(33))), ()), "at most 32"),
        (lambda: Model("t" * 65, ()), "1 to 64 bytes"),
        (lambda: Model("t", (Bytes(65_537),)), "at most 65536 bytes"),
        (lambda: Model("t", (), ()), "1 to 32 labels"),
    ],
)
def test_declarations_that_no_report_could_carry_are_refused(make, reason):
    with pytest.raises(NotDeclared, match=reason):
        make()


@pytest.mark.parametrize("real", [np.array([2, 1]), np.array([True]), np.array([1.0, 0.0])])
def test_real_is_one_truth_value_a_record(real):
    with pytest.raises(NotDeclared):
        Measure((), (Value("v", 0, 1),)).lift([[1, 1]], real)


def test_declarations_that_make_no_sense_are_refused():
    with pytest.raises(NotDeclared, match="low <= high"):
        Value("price", 2, 1)
    with pytest.raises(NotDeclared, match="low <= high"):
        Value("price", 0, field.P)
    with pytest.raises(NotDeclared, match="1 values are declared"):
        Measure((), (Value("price", 0, 1),)).lift([], BOTH)
