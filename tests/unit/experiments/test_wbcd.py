"""WBCD in scikit-learn's order."""

import sys

import numpy as np
import pytest

from experiments.data import wbcd
from experiments.data.places import NotHere

pytest.importorskip("sklearn")


def test_the_split_is_the_authors():
    data = wbcd.load()
    assert data.features.shape == (500, 30)
    assert data.test_features.shape == (69, 30)
    # Their plateau of 75.36 %.
    assert round(100 * data.test_labels.mean(), 2) == 75.36
    assert data.features.min(axis=0).tolist() == [0] * 30
    assert data.features.max(axis=0).tolist() == [255] * 30


def test_deviations_as_bytes():
    exact, data = wbcd.standardised(), wbcd.in_deviations()
    assert np.allclose(exact[:500].mean(axis=0), 0)
    assert np.allclose(exact[:500].std(axis=0), 1)
    back = (data.features.astype(float) - 128) / wbcd.DEVIATION
    inside = np.abs(exact[:500]) < 3.9
    assert np.abs(back - exact[:500])[inside].max() <= 0.5 / wbcd.DEVIATION
    assert np.mean(inside) > 0.98


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    wbcd.raw.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(NotHere, match="install scikit-learn"):
        wbcd.check()
    wbcd.raw.cache_clear()
