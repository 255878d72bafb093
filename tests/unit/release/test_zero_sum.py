"""Masks on answers: they add up to zero, each is uniform, and every part of the key counts."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from maskedlark.core import field
from maskedlark.release import zero_sum
from tests.twins import zero_sum as twin

KEY = bytes(range(32))
numbers = st.lists(st.integers(0, field.P - 1), min_size=0, max_size=40)
parts = st.lists(st.binary(max_size=6) | st.lists(st.binary(max_size=6), max_size=3), max_size=4)


@given(numbers, st.integers(2, 6), st.binary(min_size=32, max_size=32))
def test_masks_are_the_twins_and_add_up_to_zero(given, helpers, key):
    answer = np.array(given, np.int64)
    masked = [zero_sum.masked(answer, key, place, helpers) for place in range(helpers)]
    assert [each.tolist() for each in masked] == [
        twin.masked(given, key, place, helpers) for place in range(helpers)
    ]
    assert reduce(field.add, masked).tolist() == [helpers * number % field.P for number in given]


@pytest.mark.parametrize("count", [zero_sum._BLOCK, zero_sum._BLOCK + 1, 3 * zero_sum._BLOCK - 1])
def test_blocks_make_no_difference(count):
    answer = np.arange(count)
    for place in (0, 2):
        found = zero_sum.masked(answer, KEY, place, 3)
        assert found.tolist() == twin.masked(answer.tolist(), KEY, place, 3)


@given(st.lists(st.binary(max_size=6), max_size=3), parts)
def test_the_key_is_the_twins(seeds, bound):
    assert zero_sum.key(seeds, *bound) == twin.key(seeds, *bound)


@given(parts, parts)
def test_no_two_lists_of_parts_have_one_key(one, other):
    def flat(found):
        return [part if isinstance(part, bytes) else b"".join(map(twin.framed, part)) for part in found]

    assert (zero_sum.key([], *one) == zero_sum.key([], *other)) == (flat(one) == flat(other))


def test_a_seed_more_or_in_another_order_makes_another_key():
    one, other = b"1" * 32, b"2" * 32
    keys = {zero_sum.key(seeds, b"x") for seeds in ([one], [other], [one, other], [other, one], [one, one])}
    assert len(keys) == 5


def test_a_word_of_p_is_skipped(monkeypatch):
    """It comes once in 2^61 words, so a stream is made that has some."""
    words = [5, field.P, 7, (7 << 61) | field.P, 9, 11, field.P, 13]

    class Stream:
        def __init__(self, *_):
            self.left = words

        def encryptor(self):
            return self

        def update(self, data):
            taken, self.left = self.left[: len(data) // 8], self.left[len(data) // 8 :]
            return np.array(taken, "<u8").tobytes()

    monkeypatch.setattr(zero_sum, "Cipher", Stream)
    mask = zero_sum.Mask(KEY, 1)
    assert [*mask.next(3).tolist(), *mask.next(2).tolist()] == [5, 7, 9, 11, 13]


def test_every_mask_is_uniform_and_none_says_anything_of_another():
    """Fixed key; each p-value fails once in a million choices of it."""
    masks = [zero_sum.Mask(KEY, place).next(100_000) / field.P for place in (1, 2, 3)]
    masks.append(zero_sum.masked(np.zeros(100_000, np.int64), KEY, 0, 4) / field.P)
    for each in masks:
        assert stats.kstest(each, "uniform").pvalue > 1e-6
    for place, each in enumerate(masks[:3]):
        assert stats.pearsonr(each, masks[place + 1]).pvalue > 1e-6


@pytest.mark.parametrize("helpers", [2, 3, 16])
def test_nothing_is_masked_by_nothing(helpers):
    assert len(zero_sum.masked(np.zeros(0, np.int64), KEY, helpers - 1, helpers)) == 0
