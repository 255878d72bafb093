"""How good the demo's models are, on other people whose labels it knows: it made them up."""

import numpy as np
from numpy.typing import NDArray

from maskedlark.cli.acts.found import Bucket, Judged

BUCKETS = 10
LEAST = 100
"""Of fewer people, what share of them bought says little."""

Labels = NDArray[np.int64]
Chances = NDArray[np.float64]


def judged(name: str, who: str, labels: Labels, predicted: Chances) -> Judged:
    """A model by what it said of people, and by what they did."""
    return Judged(
        name, who, auc(labels, predicted), log_loss(labels, predicted), calibration(labels, predicted)
    )


def auc(labels: Labels, scores: Chances) -> float:
    """How often a buyer's score is over that of somebody who did not buy; equal scores count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ones = int(labels.sum())
    below = float(ranks[labels == 1].sum()) - ones * (ones + 1) / 2
    return below / (ones * (len(labels) - ones))


def log_loss(labels: Labels, predicted: Chances) -> float:
    """The mean negative logarithm of what was predicted for the true label."""
    right = np.where(labels == 1, predicted, 1 - predicted)
    return float(-np.log(np.clip(right, 1e-12, 1)).mean())


def calibration(labels: Labels, predicted: Chances) -> tuple[Bucket, ...]:
    """Buckets of predicted chances, all as wide: their mean, and the share of their people who bought."""
    places = np.minimum((predicted * BUCKETS).astype(int), BUCKETS - 1)
    found = []
    for place in range(BUCKETS):
        mine = places == place
        people = int(mine.sum())
        if people >= LEAST:
            share = float(labels[mine].mean())
            error = float(np.sqrt(share * (1 - share) / people))
            found.append(Bucket(float(predicted[mine].mean()), share, error, people))
    return tuple(found)
