"""Batches: the same as one record at a time, and laws that hold for every seed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import batches
from maskedlark.errors import NotDeclared
from tests.twins import batches as twin

SEED = bytes(range(32))
seeds = st.binary(min_size=32, max_size=32)
tags = st.text(max_size=8)
slots = st.integers(0, 2**64 - 1)
rates = st.floats(0, 1, exclude_max=True)


@settings(max_examples=15)
@given(seeds, tags, slots, rates, st.integers(0, 40))
def test_every_draw_is_the_twins(seed, tag, slot, rate, records):
    drawn = [i for i in range(records) if twin.is_drawn(seed, tag, slot, rate, records, i)]
    assert batches.poisson(seed, tag, slot, rate, records).tolist() == drawn
    out = [twin.is_held_out(seed, tag, rate, records, i) for i in range(records)]
    assert batches.held_out(seed, tag, rate, records).tolist() == out


@settings(max_examples=12)
@given(seeds, slots, st.integers(1, 9), st.integers(0, 25))
def test_every_partition_is_the_twins(seed, slot, count, records):
    found = batches.partition(seed, "m", slot, count, records)
    for record in range(records):
        place = twin.place(seed, "m", slot, count, records, record)
        assert [number for number, batch in enumerate(found) if record in batch] == [place]


def test_the_cipher_is_the_standards():
    # The first published vector: key, nonce and counter 0, 20 rounds.
    assert twin.block(bytes(32), 0).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")


@given(seeds, slots, st.integers(1, 300), st.integers(0, 400))
def test_a_partition_has_every_record_once_and_even_batches(seed, slot, count, records):
    found = batches.partition(seed, "m", slot, count, records)
    assert len(found) == count
    assert sorted(np.concatenate(found).tolist()) == list(range(records))
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert all((np.diff(batch) > 0).all() for batch in found)


@given(rates)
def test_a_threshold_is_never_more_than_the_rate_and_hardly_less(rate):
    threshold = int(batches._threshold(rate))
    assert Fraction(threshold, 2**64) <= Fraction(rate)
    assert Fraction(rate) - Fraction(threshold, 2**64) < Fraction(1, 2**64)


@pytest.mark.parametrize("nonsense", [-0.1, 1.0, 1.5, math.nan, math.inf, -math.inf])
def test_a_share_that_makes_no_sense_is_refused(nonsense):
    with pytest.raises(NotDeclared, match="less than 1"):
        batches.held_out(SEED, "m", nonsense, 10)


def test_at_rate_1_everybody_is_drawn_and_at_rate_0_nobody():
    assert batches.poisson(SEED, "m", 0, 1.0, 5).tolist() == [0, 1, 2, 3, 4]
    assert batches.poisson(SEED, "m", 0, 0.0, 5).tolist() == []
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
        batches._words(*arguments).tobytes()
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


@given(seeds, st.floats(0.01, 1), st.integers(1, 12), st.integers(1, 200))
@settings(max_examples=40)
def test_the_most_batches_of_a_record_are_counted(seed, rate, steps, records):
    drawn = [set(batches.poisson(seed, "m", slot, rate, records).tolist()) for slot in range(7, 7 + steps)]
    most = max(sum(record in batch for batch in drawn) for record in range(records))
    assert batches.most_batches(seed, "m", range(7, 7 + steps), rate, records) == most


def test_nobody_is_in_no_batch_at_all():
    assert batches.most_batches(SEED, "m", range(0), 0.5, 10) == 0
    assert batches.most_batches(SEED, "m", range(10), 0.5, 0) == 0
