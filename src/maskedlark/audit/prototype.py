"""Masks as the paper's public prototype draws them: the naive version that our attacks must win against.

For each user it draws a number u in [0, 1) for the fake label, shared as (u, -u), and another for the true
label, shared as (u, 1 - u): floats, from numpy's legacy global generator.
"""

import numpy as np
from numpy.typing import NDArray

View = NDArray[np.float64]
"""One helper's masks: (users, 2), for label 0 and label 1."""


def masks(labels: NDArray[np.int64], generator: np.random.RandomState) -> tuple[View, View]:
    """Both helpers' masks of binary labels."""
    fake, true = generator.uniform(size=(len(labels), 2)).T
    converted = (labels == 1)[:, None]
    first = np.where(converted, np.stack([fake, true], axis=1), np.stack([true, fake], axis=1))
    second = np.where(converted, np.stack([-fake, 1 - true], axis=1), np.stack([1 - true, -fake], axis=1))
    return first, second


def generator(seed: int) -> np.random.RandomState:
    """The prototype's generator: a Mersenne Twister. Here to be broken; no secret of ours touches it."""
    return np.random.RandomState(seed)
