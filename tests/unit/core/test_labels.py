from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core.labels import MAX_LABELS, Buckets, LabelSpace
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness, SystemRandomness
from tests.twins import quantise as twin

RNG = SystemRandomness()


def test_the_four_spaces():
    assert LabelSpace.binary().values == (0, 1)
    assert LabelSpace.categorical(4).values == (0, 1, 2, 3)
    assert LabelSpace.integers(-2, 1).values == (-2, -1, 0, 1)
    assert LabelSpace.reals(0, 10, 4).values == (0, 2, 3, 5, 7, 8, 10)  # boundaries 0, 2.5, 5, 7.5, 10


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: LabelSpace.integers(1, 5), "holds 0"),
        (lambda: LabelSpace((0,)), "2 to"),
        (lambda: LabelSpace((1, 0)), "ascending"),
        (lambda: LabelSpace((0, 0, 1)), "different"),
        (lambda: LabelSpace((0, 2**60)), "larger units"),
        (lambda: LabelSpace.integers(0, MAX_LABELS), "2 to"),
        (lambda: LabelSpace.reals(0, 0, 3), "low <= 0 < high"),
        (lambda: LabelSpace.reals(1, 5, 4), "low <= 0 < high"),
        (lambda: LabelSpace.reals(-3, 8, 7), "multiple of 11 buckets"),
        (lambda: LabelSpace.reals(0.0, 1.0, 4), "whole numbers"),  # type: ignore[arg-type]
        (lambda: LabelSpace((0.0, 1.0)), "whole numbers"),  # type: ignore[arg-type]
        (lambda: LabelSpace.reals(0, 5, 0), "buckets"),
        (lambda: LabelSpace.reals(0, 2**32, 5), "larger units"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(make, reason):
    with pytest.raises(NotDeclared, match=reason):
        make()


def test_exact_labels_stay_as_they_are():
    space = LabelSpace.integers(-3, 3)
    assert space.quantise([-3, 0, 3], RNG).tolist() == [-3, 0, 3]
    assert space.quantise(np.array([1.0, 2.0]), RNG).tolist() == [1, 2]
    assert space.quantise([True, False], RNG).tolist() == [1, 0]


@pytest.mark.parametrize("labels", [[4], [-4], [0.5], [float("nan")], [float("inf")], ["1"], [2**63]])
def test_labels_outside_their_space_are_refused(labels):
    with pytest.raises(NotDeclared):
        LabelSpace.integers(-3, 3).quantise(labels, RNG)


@pytest.mark.parametrize("label", [-0.001, 10.001, "10.000000000000000000001", 2**70])
def test_real_labels_outside_their_range_are_refused(label):
    with pytest.raises(NotDeclared, match="0 … 10"):
        LabelSpace.reals(0, 10, 4).quantise([label], RNG)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(1, 20), st.fractions(0, 1, max_denominator=64))
def test_quantised_labels_are_possible_ones_and_in_the_space(below, above, width, place):
    low, high, buckets = -below * width, above * width, below + above
    label = low + float(place) * (high - low)
    drawn = Buckets(low, high, buckets).quantise(np.full(50, label), FixedRandomness(b"q"))
    possible = twin.distribution(Fraction(label), low, high, buckets)
    near = {
        n + d for n in possible for d in (-1, 0, 1)
    }  # float rounding at a boundary may pick its neighbour
    assert set(drawn.tolist()) <= near & set(Buckets(low, high, buckets).integers())


@pytest.mark.parametrize(("low", "buckets"), [(-10, 2), (0, 3), (0, 10), (0, 20), (0, 7)])
def test_rounding_adds_at_most_the_variance_that_is_said(low, buckets):
    space, most = LabelSpace.reals(low, 10, buckets), 0.0
    for place in range(65):
        label = low + Fraction(place * (10 - low), 64)
        possible = twin.distribution(label, low, 10, buckets)
        most = max(most, float(sum(chance * (value - label) ** 2 for value, chance in possible.items())))
    assert 0.7 * space.rounding_variance <= most <= space.rounding_variance
    assert LabelSpace.integers(-3, 3).rounding_variance == 0


def test_a_source_that_did_not_convert_has_label_0_exactly():
    space = LabelSpace.reals(-3, 9, 8)
    assert space.values == (-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert set(space.quantise(np.zeros(1000), RNG)) == {0}


def test_a_label_that_is_no_number_is_not_quoted():
    for space in (LabelSpace.reals(0, 10, 4), LabelSpace.binary()):
        with pytest.raises(NotDeclared) as refused:
            space.quantise(["4711 EUR"], RNG)
        assert "4711" not in str(refused.value)


def test_the_twin_keeps_the_mean_exactly():
    for label in (Fraction(0), Fraction(7, 3), Fraction(99, 10), Fraction(10)):
        expected = twin.distribution(label, 0, 10, 7)
        assert sum(expected.values()) == 1
        assert sum(n * p for n, p in expected.items()) == label
