"""Data of the experiments: bytes as helpers get them, never committed; a module a dataset."""

from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MODULES = {"MNIST": "mnist", "WBCD": "wbcd", "online shoppers": "shoppers", "Hillstrom": "hillstrom"}
"""A dataset's name in rows, and its module. Each has `check()`, which raises NotHere."""


class Split(NamedTuple):
    """Rows to train with and rows to test with."""

    features: NDArray[np.uint8]
    labels: NDArray[np.int64]
    test_features: NDArray[np.uint8]
    test_labels: NDArray[np.int64]

    def first(self, rows: int) -> "Split":
        """The same with fewer rows to train with."""
        return self._replace(features=self.features[:rows], labels=self.labels[:rows])


def check(dataset: str) -> None:
    """Raise NotHere where a dataset is not here. Rows that need none have another name."""
    if dataset in MODULES:
        import_module(f"{__name__}.{MODULES[dataset]}").check()
