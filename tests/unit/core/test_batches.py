"""Batches: the same as one record at a time, and laws that hold for every seed."""

import math
import tracemalloc
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from maskedlark.core import batches
from maskedlark.errors import NotDeclared
from tests.twins import batches as twin

SEED = bytes(range(32))
seeds = st.binary(min_size=32, max_size=32)
tags = st.text(max_size=8)
slots = st.integers(0, 2**64 - 1)
rates = st.floats(0, 1, exclude_max=True)
over_0 = st.floats(2**-40, 1) | st.floats(2**-40, 0.1)


@settings(max_examples=40)
@given(seeds, tags, slots, over_0, st.integers(0, 60))
def test_every_draw_is_the_twins(seed, tag, slot, rate, records):
    found = batches.poisson(seed, tag, slot, rate, records)
    assert (found.batch.tolist(), found.rows.tolist()) == twin.poisson(seed, tag, slot, rate, records)


@settings(max_examples=15)
@given(seeds, tags, rates, st.integers(0, 40))
def test_who_is_held_out_is_the_twins(seed, tag, rate, records):
    out = [twin.is_held_out(seed, tag, rate, records, i) for i in range(records)]
    assert batches.held_out(seed, tag, rate, records).tolist() == out


@settings(max_examples=12)
@given(seeds, slots, st.integers(1, 9), st.integers(0, 25))
def test_every_partition_is_the_twins(seed, slot, count, records):
    wanted = [twin.place(seed, "m", slot, count, records, record) for record in range(records)]
    assert batches.partition(seed, "m", slot, count, records).tolist() == wanted


def test_the_cipher_is_the_standards():
    # The first published vector: key, nonce and counter 0, 20 rounds.
    assert twin.block(bytes(32), 0).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")


@given(seeds, slots, st.integers(1, 300), st.integers(0, 400))
def test_a_partition_has_every_record_once_and_even_batches(seed, slot, count, records):
    found = batches.partition(seed, "m", slot, count, records)
    sizes = np.bincount(found, minlength=count)
    assert (len(found), len(sizes)) == (records, count)
    assert sizes.max() - sizes.min() <= 1


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), max_size=60),
    st.integers(1, 70),
    st.integers(1, 50),
)
def test_a_partition_is_that_of_records_sorted_by_their_words(words, count, block):
    """Also where words are equal, which no seed is known for: the earlier record is first."""

    class Given:
        def __init__(self):
            self.left = np.array(words, np.uint64)

        def random_raw(self, size):
            drawn, self.left = np.split(self.left, [size])
            return drawn

    with patch.object(batches, "_stream", lambda *_: Given()), patch.object(batches, "BLOCK", block):
        found = batches.partition(SEED, "m", 0, count, len(words))
    order = np.argsort(np.array(words, np.uint64), kind="stable")
    for number, own in enumerate(np.array_split(order, count)):
        assert np.flatnonzero(found == number).tolist() == sorted(own.tolist())


@pytest.mark.parametrize("rate", [0.01, 0.4, 0.7])
def test_draws_in_blocks_are_those_at_once(rate, monkeypatch):
    def drawn():
        found = batches.poisson(SEED, "m", 3, rate, 1000)
        out, parts = batches.held_out(SEED, "m", rate, 1000), batches.partition(SEED, "m", 3, 7, 1000)
        return found.rows.tolist(), found.taken.tolist(), out.tolist(), parts.tolist()

    whole = drawn()
    monkeypatch.setattr(batches, "BLOCK", 7)
    assert drawn() == whole


@given(rates)
def test_a_threshold_is_never_more_than_the_rate_and_hardly_less(rate):
    threshold = int(batches._threshold(rate))
    assert Fraction(threshold, 2**64) <= Fraction(rate)
    assert Fraction(rate) - Fraction(threshold, 2**64) < Fraction(1, 2**64)


@pytest.mark.parametrize("nonsense", [-0.1, 1.0, 1.5, math.nan, math.inf, -math.inf])
def test_a_share_that_makes_no_sense_is_refused(nonsense):
    with pytest.raises(NotDeclared, match="less than 1"):
        batches.held_out(SEED, "m", nonsense, 10)


@given(over_0, st.integers(1, 80))
@settings(max_examples=40)
def test_sizes_are_those_of_coins_to_the_last_of_128_bits(rate, records):
    """So that a batch is within 2^-100 of its law: 80 sizes, each off by two units at most."""
    if rate < 1:
        found, exact = batches._sizes(rate, records), twin.sizes(rate, records)
        for place, end in enumerate(found.ends):
            assert abs(end - exact[found.least + place]) <= 2
        assert found.least == 0 or exact[found.least - 1] == 0
        assert exact[found.least + len(found.ends) - 1] >= 2**128 - 2
    assert batches.room(rate, records) == twin.room(rate, records)


@pytest.mark.parametrize(("rate", "records"), [(1000 / 60_000, 60_000), (0.025, 4000), (0.5, 10_000)])
def test_sizes_of_many_are_those_that_scipy_finds(rate, records):
    found = batches._sizes(rate, records)
    sizes = found.least + np.arange(len(found.ends))
    ours = np.array([end / 2**128 for end in found.ends])
    assert np.abs(ours - stats.binom.cdf(sizes, records, rate)).max() < 1e-12
    most = batches.room(rate, records)
    assert (
        stats.binom.logsf(most, records, rate)
        <= -64 * math.log(2)
        < stats.binom.logsf(most - 1, records, rate)
    )


@given(seeds, slots, over_0, st.integers(1, 500))
def test_the_work_of_a_batch_says_nothing_of_its_size(seed, slot, rate, records):
    found = batches.poisson(seed, "m", slot, rate, records)
    most = batches.room(rate, records)
    assert len(found.rows) == len(set(found.rows.tolist())) == (most if 2 * most <= records else records)
    assert set(found.rows.tolist()) <= set(range(records))


def test_a_batch_of_ten_million_takes_time_in_proportion_to_it():
    """Counted in words of the stream, not in seconds: about as many as records in the batch."""
    words = []

    class Counting:
        def random_raw(self, count):
            words.append(count)
            return stream.random_raw(count)

    stream = batches._stream(SEED, "poisson", "m", 0, 10_000_000)
    rows = batches._different(Counting(), batches.room(0.001, 10_000_000), 10_000_000)
    assert len(rows) < sum(words) < 1.1 * len(rows)
    assert len(rows) < 1.1 * 0.001 * 10_000_000


def test_of_the_rooms_of_many_shards_only_numbers_are_kept():
    """Every step asks for all of them: they are found once, and no distribution is kept for each."""
    batches._sizes.cache_clear()
    tracemalloc.start()
    for _ in range(2):
        for records in range(1000, 3000):
            batches.room(0.01, records)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batches.room.cache_info().hits >= 2000
    assert taken < 2000 * 500


def test_at_rate_1_everybody_is_drawn_and_rate_0_is_none():
    assert batches.poisson(SEED, "m", 0, 1.0, 5).batch.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(NotDeclared, match="over 0"):
        batches.poisson(SEED, "m", 0, 0.0, 5)
    assert not batches.held_out(SEED, "m", 0.0, 1000).any()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_seed_has_32_bytes(size):
    with pytest.raises(NotDeclared, match="32 bytes"):
        batches.poisson(bytes(size), "m", 0, 0.5, 10)


def test_an_epoch_has_a_batch():
    with pytest.raises(NotDeclared, match="1 batch or more"):
        batches.partition(SEED, "m", 0, 0, 10)


def test_every_argument_makes_another_draw():
    words = [
        batches._stream(*arguments).random_raw(64).tobytes()
        for arguments in (
            (SEED, "poisson", "m", 0, 64),
            (bytes(32), "poisson", "m", 0, 64),
            (SEED, "partition", "m", 0, 64),
            (SEED, "poisson", "mm", 0, 64),
            (SEED, "poissonm", "", 0, 64),
            (SEED, "poisso", "nm", 0, 64),
            (SEED, "poisson", "m", 1, 64),
            (SEED, "poisson", "m", 1 << 32, 64),
            (SEED, "poisson", "m", 0, 65),
        )
    ]
    assert len({each[:512] for each in words}) == len(words)
