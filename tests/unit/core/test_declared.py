import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.declared import Bag, Bytes, Category, Measure, Model, Value
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
        (lambda: Model("t" * 65, (Bytes(1),)), "1 to 64 bytes"),
        (lambda: Bytes(65_537), "byte features is from 1 to 65536, not 65537"),
        (lambda: Bytes(0), "from 1 to 65536, not 0"),
        (lambda: Category(1 << 32), "from 1 to 4294967295"),
        (lambda: Category(0), "from 1 to"),
        (lambda: Bag(0, 1), "from 1 to"),
        (lambda: Bag(1, 1025), "from 1 to 1024"),
        (lambda: Bag(1, 0), "from 1 to 1024"),
        (lambda: Model("t", (Bytes(65_536), Category(2))), "65536 bytes together, not 2 of 65540"),
        (lambda: Model("t", (Category(2),) * 65), "at most 64 columns"),
        (lambda: Model("t", (Bytes(1), Category(2), Bytes(1))), "two columns of bytes"),
        (lambda: Model("t", (Bytes(1),), ()), "1 to 32 labels"),
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


def test_columns_have_their_place_and_width_on_the_wire():
    model = Model("t", (Category(7), Bag(1 << 31, 3), Bytes(5), Category((1 << 32) - 1)))
    assert [column.width for column in model.columns] == [4, 12, 5, 4]
    assert (model.width, model.features, model.byte_span) == (25, 5, slice(16, 21))
    assert (Model("t", (Category(7),)).features, Model("t", ()).width) == (0, 0)
    assert bytes(range(4))[Model("t", (Category(7),)).byte_span] == b""
    assert Model("t", (Bytes(65_536),)).width == Model("t", (Bag(1, 1024),) * 16).width == 65_536
