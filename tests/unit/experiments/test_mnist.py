"""MNIST as the authors split it."""

import numpy as np
import pytest

from experiments.data import mnist, places
from experiments.data.places import NotHere


def test_rows_and_labels():
    try:
        data = mnist.load()
    except NotHere as error:
        pytest.skip(str(error))
    assert data.features.shape == (50_000, 784)
    assert data.test_features.shape == (10_000, 784)
    assert data.features.dtype == np.uint8
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert len(data.first(100).features) == len(data.first(100).labels) == 100
    assert len(data.first(100).test_labels) == 10_000


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    mnist.load.cache_clear()
    with pytest.raises(NotHere, match="mnist/train-images"):
        mnist.check()
