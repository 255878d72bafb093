"""A dataset's digest from heads that come in any order is that of all of them sorted at once."""

import numpy as np
import pytest

from maskedlark.adserver import heads
from maskedlark.adserver.heads import SortedHeads
from maskedlark.core.purpose import Purpose
from maskedlark.wire import datasets
from maskedlark.wire.datasets import DatasetDigest
from maskedlark.wire.report import HEAD_BYTES

OF = "https://shop.example", bytes(32), Purpose.TRAIN


@pytest.mark.parametrize("held", [1, 10, 64, 10_000])
def test_however_many_are_held_the_digest_is_the_same(monkeypatch, held):
    monkeypatch.setattr(heads, "HELD", held)
    rng, found = np.random.default_rng(held), SortedHeads()
    every = rng.integers(0, 256, (400, HEAD_BYTES), np.uint8)
    every[::3, -5:] = 0
    every[::5, :3] = 0
    for some in np.array_split(every, 23):
        found.add(some)
    assert found.count == 400
    assert found.digest(DatasetDigest(*OF)) == datasets.digest(*OF, every)


def test_nothing_has_a_digest():
    nothing = np.empty((0, HEAD_BYTES), np.uint8)
    found = SortedHeads()
    found.add(nothing)
    assert found.digest(DatasetDigest(*OF)) == datasets.digest(*OF, nothing)
