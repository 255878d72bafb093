"""WBCD, scikit-learn's, in its own order: rows [:500] to train with, [500:569] to test with.

The authors' plotted accuracies are multiples of 1/69, and their plateau is the share of benign rows among
the last 69: so this is their split, and it was not shuffled.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.data import Split
from experiments.data.places import NotHere

TRAINED = 500
DEVIATION = 32


def check() -> None:
    """Raise NotHere without scikit-learn."""
    raw()


@cache
def raw() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All 569 rows in the units of measurement, up to 4254, and their labels: 1 is benign."""
    try:
        from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - an extra, and slow
    except ModuleNotFoundError:
        raise NotHere("WBCD is needed: install scikit-learn, or maskedlark with its extra `audit`") from None
    values, labels = load_breast_cancer(return_X_y=True)
    return values, labels.astype(np.int64)


def standardised() -> NDArray[np.float64]:
    """All rows with every column in standard deviations from its mean, over the rows to train with."""
    values, _ = raw()
    mean, deviation = values[:TRAINED].mean(axis=0), values[:TRAINED].std(axis=0)
    return np.asarray((values - mean) / deviation, np.float64)


@cache
def in_deviations() -> Split:
    """As bytes around 128, `DEVIATION` to a standard deviation: four of them either way, then clipped."""
    scaled = np.clip(128 + DEVIATION * standardised(), 0, 255).round().astype(np.uint8)
    return _split(scaled)


@cache
def load() -> Split:
    """As bytes: every column scaled so that 0 … 255 is its range over the rows to train with."""
    values, _ = raw()
    low, high = values[:TRAINED].min(axis=0), values[:TRAINED].max(axis=0)
    scaled = np.clip((values - low) / (high - low) * 255, 0, 255).round().astype(np.uint8)
    return _split(scaled)


def _split(scaled: NDArray[np.uint8]) -> Split:
    _, labels = raw()
    return Split(scaled[:TRAINED], labels[:TRAINED], scaled[TRAINED:], labels[TRAINED:])
