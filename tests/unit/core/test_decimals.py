from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maskedlark.core import decimals
from maskedlark.core.labels import Buckets, LabelSpace
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness, Randomness
from tests.twins import quantise as twin


class Words(Randomness):
    """These words, and then others."""

    def __init__(self, *words: int) -> None:
        self._bytes = b"".join(word.to_bytes(8, "little") for word in words)
        self._others = FixedRandomness(b"others")

    def bytes(self, count: int) -> bytes:
        if len(self._bytes) < count:
            self._bytes += self._others.bytes(count)
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def __iter__(self):
        return self

    def __next__(self):
        return int(self.words(1)[0])


CHANCES = st.tuples(st.integers(1, 1 << 80), st.integers(0, 1 << 80)).map(
    lambda drawn: Fraction(min(drawn), max(drawn))
)


def near(chance: Fraction, offset: int) -> int:
    """A word about as large as a chance, where comparisons are close."""
    return min(max(int(chance * (1 << 64)) + offset, 0), (1 << 64) - 1)


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (12.5, Fraction(25, 2)),
        ("12.50", Fraction(25, 2)),
        (0.1, Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (Decimal("-0.1"), Fraction(-1, 10)),
        (1e-07, Fraction(1, 10**7)),
        (5e-324, Fraction(5, 10**324)),
        (1.7976931348623157e308, 17976931348623157 * 10**292),
        (-0.0, 0),
        ("0e-1000000", 0),
        ("2E+1", 20),
        (Fraction(1, 3), Fraction(1, 3)),
        (7, 7),
    ],
)
def test_a_number_is_the_decimal_that_it_prints_as(given_value, expected):
    assert decimals.exact(given_value, "it") == expected


@pytest.mark.parametrize(
    "wrong",
    [
        float("nan"), float("-inf"), "sNaN", "Infinity", True, None, b"1", "", " 1", "1_000", "1,5", "25/2",
        "4711 EUR", Decimal("1E+1000000"), "1e-999999999999999999", "0." + "1" * 401, [1],
        pytest.param(10**5000, id="more digits than Python prints"),
    ],
)  # fmt: skip
def test_no_other_number_is_taken_or_quoted(wrong):
    with pytest.raises(NotDeclared, match=r"^a label is not a decimal number$") as refused:
        decimals.exact(wrong, "a label")
    assert refused.value.__cause__ is None


@given(CHANCES, st.integers(-2, 2), st.integers(0, (1 << 64) - 1))
@example(Fraction(1, 3), 0, 0x5555555555555555)
def test_a_quotient_is_rounded_as_by_its_twin(chance, offset, second):
    words = near(chance, offset), second
    for whole in (0, -3):
        numerator = whole * chance.denominator + chance.numerator
        rng = Words(*words)
        found = decimals.divide(np.array([numerator], object), chance.denominator, rng)
        twins = Words(*words)
        assert found[0] - whole == twin.below(chance, twins) if chance < 1 else found[0] == whole + 1
        assert chance in (0, 1) or next(rng) == next(twins), "and took as many words"


@given(st.integers(1, 50), st.integers(2, 1 << 46), st.integers(0, 1 << 63))
def test_large_denominators_change_nothing(count, denominator, seed):
    """Small ones are divided in 64 bits, large ones in Python's integers."""
    numerators = FixedRandomness(b"%d" % seed).below(denominator * 7, count) - 3 * denominator
    small = decimals.divide(numerators, denominator, FixedRandomness(b"same"))
    large = decimals.divide(numerators.astype(object) << 60, denominator << 60, FixedRandomness(b"same"))
    assert small.dtype == large.dtype == np.int64
    assert small.tolist() == large.tolist()


def probability(chance: Fraction, digits: int) -> Fraction:
    """How likely it is rounded up, by the words next to where the outcome changes, to so many words."""
    cut, words = chance * (1 << 64) // 1, (1 << 64) - 1
    for word, expected in ((cut - 1, 1), (cut + 1, 0)):
        if 0 <= word <= words:
            rounded = decimals.divide(np.array([chance.numerator]), chance.denominator, Words(word))
            assert rounded == [expected]
    rest = chance * (1 << 64) - cut
    return (cut + (probability(rest, digits - 1) if digits else rest)) / (1 << 64)


@given(CHANCES.filter(lambda chance: 0 < chance < 1 and chance.denominator < 1 << 62))
def test_the_probability_is_exact(chance):
    assert probability(chance, 3) == chance


SIDES = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 1 << 28), st.integers(1, 9))


@given(SIDES, st.integers(0, 9), st.data())
def test_quantised_decimals_are_those_of_the_twin(sides, places, data):
    below, above, width, finer = sides
    low, high, count = -below * width, above * width, (below + above) * finer
    scaled = data.draw(st.integers(low * 10**places, high * 10**places))
    label = Fraction(scaled, 10**places)
    expected = twin.distribution(label, low, high, count)
    assert sum(integer * chance for integer, chance in expected.items()) == label
    step = Fraction(high - low, count)
    first = near((label - low) / step % 1, data.draw(st.integers(-2, 2)))
    words = first, data.draw(st.integers(0, (1 << 64) - 1))
    given_as = data.draw(st.sampled_from([Decimal(scaled).scaleb(-places), f"{scaled}e-{places}", label]))
    [found] = Buckets(low, high, count).quantise([given_as], Words(*words))
    assert found == twin.draw(label, low, high, count, Words(*words))
    assert found in expected


def test_a_column_of_floats_is_quantised_as_its_decimals():
    """Tenths have no binary form: no probability, and no boundary, depends on the nearest float."""
    space, floats = LabelSpace.reals(0, 10, 20), np.arange(101) / 10
    texts = [f"{place // 10}.{place % 10}" for place in range(101)]
    columns: list[Any] = [floats, texts, [*map(Decimal, texts)], np.array(texts, object)]
    drawn = [space.quantise(column, FixedRandomness(b"same")).tolist() for column in columns]
    assert all(each == drawn[0] for each in drawn)
    assert drawn[0][::10] == [*range(11)]


def test_whole_numbers_are_not_rounded_and_draw_nothing():
    rng = FixedRandomness(b"")
    columns: list[Any] = [[3, -2], [3.0, -2.0], [Decimal("3.00"), -2], ["3", "-2.0"]]
    for column in columns:
        found = decimals.whole(column, "a value", rng)
        assert found.dtype == np.int64
        assert found.tolist() == [3, -2]
    assert decimals.whole([], "a value", rng).tolist() == []
    assert rng.bytes(8) == FixedRandomness(b"").bytes(8)
    assert decimals.whole([1 << 70, 0.5], "a value", rng)[0] == 1 << 70


@pytest.mark.parametrize("value", ["2.25", "-2.25", "0.000000001"])
def test_rounding_keeps_the_mean(value):
    drawn = decimals.whole([value] * 100_000, "a value", FixedRandomness(value.encode()))
    exact = Fraction(value)
    assert set(drawn.tolist()) <= {exact // 1, exact // 1 + 1}
    # Six deviations of at most 1/2: one false alarm in 5 x 10^8.
    assert abs(drawn.mean() - float(exact)) < 6 * 0.5 / 100_000**0.5
