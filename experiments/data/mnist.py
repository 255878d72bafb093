"""MNIST as the authors split it: 50,000 rows to train with, 10,000 to test with; a pixel is a byte."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.data import Split
from experiments.data.places import File, read

TRAINED = 50_000
"""Of 60,000: the paper names so many."""
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FILES = {
    "train-images-idx3": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_HEADS = {"idx3": 16, "idx1": 8}


def check() -> None:
    """Raise NotHere where a file is missing."""
    load()


@cache
def load() -> Split:
    """All rows, in the order of the files."""
    return Split(
        _bytes("train-images-idx3").reshape(-1, 784)[:TRAINED],
        _bytes("train-labels-idx1").astype(np.int64)[:TRAINED],
        _bytes("t10k-images-idx3").reshape(-1, 784),
        _bytes("t10k-labels-idx1").astype(np.int64),
    )


@cache
def components(count: int) -> Split:
    """The same as so many principal components, bytes each: what a linear model of ten classes can take."""
    data = load()
    mean = data.features.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(data.features, rowvar=False, dtype=np.float32))
    points, others = (
        ((rows - mean) @ axes[:, -count:])[:, ::-1] for rows in (data.features, data.test_features)
    )
    low, high = np.quantile(points, (0.001, 0.999), axis=0)
    rows, tests = (
        np.clip(np.rint(255 * (each - low) / (high - low)), 0, 255).astype(np.uint8)
        for each in (points, others)
    )
    return data._replace(features=rows, test_features=tests)


def _bytes(name: str) -> NDArray[np.uint8]:
    packed = f"{name}-ubyte.gz"
    data = read(File(f"mnist/{packed}", _FILES[name], "MNIST's own file", _MIRROR + packed))
    return np.frombuffer(data, np.uint8, offset=_HEADS[name[-4:]])
