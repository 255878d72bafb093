"""Rows of a shard whose columns stay on a device: the bits of rows that are copied out."""

import gc

import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import resident
from maskedlark.exact.clip import Clip, Norm
from maskedlark.functions import gradient
from maskedlark.functions.gradient import GradientQuery
from tests.unit.release.stepping import network, quantised

RNG = np.random.default_rng(5)


def records(count: int = 40) -> TrainingRecords:
    return TrainingRecords(
        RNG.integers(0, 256, (count, 16), dtype=np.uint8),
        RNG.integers(0, 256, (count, 4), dtype=np.uint8),
        (np.array([[0, 1]]),),
        RNG.integers(0, field.P, (count, 2)),
    )


@pytest.mark.parametrize("dropout", [0, 64])
def test_rows_of_columns_that_stay_have_the_bits_of_copied_ones(monkeypatch, dropout):
    """Here the device is this processor, which otherwise copies rows."""
    made = network(dropout=dropout)
    sent = quantised(made)
    query = GradientQuery("m", made, sent, Clip(1.0, Norm.L2, 20), b"s" * 32 if dropout else None)
    shard, rows = records(), np.array([3, 3, 9, 20, 39])
    counted = np.array([True, False, True, True, False])
    for places, which in ((rows, counted), (None, np.arange(40) % 3 == 0)):
        copied = query.over_rows(shard, places, which)
        monkeypatch.setattr(gradient, "_CPU", "elsewhere")
        stayed = query.over_rows(shard, places, which)
        monkeypatch.undo()
        assert stayed[0].shares[0].tolist() == copied[0].shares[0].tolist()
        assert stayed[0].records.tolist() == copied[0].records.tolist()


def test_columns_stay_while_their_shard_does_and_memory_lasts(monkeypatch):
    made, first, second = network(), records(), records()
    resident._KEPT.clear()
    columns = resident.kept(first, made, "cpu")
    assert resident.kept(first, made, "cpu") is columns
    resident.kept(second, made, "cpu")
    assert len(resident._KEPT) == 2
    del second
    gc.collect()
    assert resident.kept(first, made, "cpu") is columns
    assert len(resident._KEPT) == 1
    # Of four that would fit, two are kept: as much stays unused.
    held = resident._KEPT.values()
    monkeypatch.setattr(
        "maskedlark.exact.device.unused", lambda _: 4 * columns.size - sum(own.size for _, own in held)
    )
    third, fourth = records(), records()
    resident.kept(third, made, "cpu")
    assert [shard() is third for shard, _ in held] == [False, True]
    resident.kept(fourth, made, "cpu")
    assert [shard() is fourth for shard, _ in held] == [False, True]
    monkeypatch.setattr("maskedlark.exact.device.unused", lambda _: 0)
    resident.kept(second := records(), made, "cpu")
    assert [shard() is second for shard, _ in held] == [True], "one, however little there is"
