import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.errors import FieldOverflow, NotInField, WrongLength
from maskedlark.randomness import FixedRandomness
from tests.twins import field as twin

elements = st.one_of(
    st.integers(0, field.P - 1),
    st.sampled_from([0, 1, 2, field.HALF, field.HALF + 1, field.P - 2, field.P - 1, 2**31 - 1, 2**31, 2**60]),
)
pairs = st.lists(st.tuples(elements, elements), min_size=1, max_size=40)


def vector(numbers):
    return np.array(numbers, np.int64)


@given(pairs)
def test_elementwise_operations_equal_the_twin(numbers):
    a, b = (vector(column) for column in zip(*numbers, strict=True))
    assert field.add(a, b).tolist() == [twin.add(x, y) for x, y in numbers]
    assert field.subtract(a, b).tolist() == [twin.subtract(x, y) for x, y in numbers]
    assert field.multiply(a, b).tolist() == [twin.multiply(x, y) for x, y in numbers]


@given(st.lists(elements, max_size=20), st.integers(0, 200))
def test_shift_is_a_product_with_a_power_of_two(numbers, bits):
    assert field.shift(vector(numbers), bits).tolist() == [twin.multiply(x, 2**bits) for x in numbers]


@given(st.integers(0, 70), st.integers(0, 5), st.integers(0, 1))
def test_total_over_an_axis_equals_the_twin(rows, columns, axis):
    a = FixedRandomness(b"total").below(field.P, rows * columns).reshape(rows, columns)
    expected = [twin.total(line) for line in (a.T if axis == 0 else a).tolist()]
    assert field.total(a, axis).tolist() == expected


def test_total_of_the_largest_elements_does_not_overflow():
    count = 3 * (1 << 15) + 17  # more than two blocks, and a rest
    assert int(field.total(np.full(count, field.P - 1))) == twin.multiply(count, field.P - 1)


@given(st.lists(st.tuples(elements, st.integers(0, 6)), max_size=60))
def test_total_by_group_equals_the_twin(numbers):
    a, group = vector([x for x, _ in numbers]), vector([g for _, g in numbers])
    expected = [twin.total([x for x, g in numbers if g == wanted]) for wanted in range(7)]
    assert field.total_by(a, group, 7).tolist() == expected


def test_total_by_group_is_exact_beyond_one_block(monkeypatch):
    monkeypatch.setattr(field, "_CACHED", 16)
    a = np.full(1000, field.P - 1)
    group = np.arange(1000) % 3
    assert field.total_by(a, group, 3).tolist() == [twin.multiply(n, field.P - 1) for n in (334, 333, 333)]


@given(st.lists(st.integers(-field.HALF, field.HALF), max_size=20))
def test_signed_lift_and_back(numbers):
    lifted = field.from_signed(vector(numbers))
    assert lifted.tolist() == [twin.lift(x) for x in numbers]
    assert field.to_signed(lifted).tolist() == numbers
    assert [twin.lower(x) for x in lifted.tolist()] == numbers


@pytest.mark.parametrize("x", [field.HALF + 1, -field.HALF - 1])
def test_signed_lift_refuses_what_has_no_place(x):
    with pytest.raises(FieldOverflow):
        field.from_signed(vector([x]))


@given(st.lists(elements, max_size=20))
def test_bytes_and_back(numbers):
    data = field.to_bytes(vector(numbers))
    assert data == b"".join(x.to_bytes(8, "little") for x in numbers)
    assert field.from_bytes(data).tolist() == numbers


def test_bytes_are_refused_at_p_and_with_a_broken_length():
    with pytest.raises(NotInField):
        field.from_bytes(field.P.to_bytes(8, "little"))
    with pytest.raises(NotInField):
        field.from_bytes(bytes([255] * 8))
    with pytest.raises(WrongLength):
        field.from_bytes(bytes(7))
