"""Scores inside the buckets of a histogram: of the ad server's own rows, or taken to lie evenly.

A histogram says how many records of a label lie in a bucket, not where in it. With rows, ones are taken to be
spread over a bucket as the model predicts; what changes if they are spread as all rows are is the doubt.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_CLOSE = 1e-9
"""Edges this close are the same."""
_POINTS = 16
"""Of a bucket, where no rows are known."""
_TINY = 1e-150


@dataclass(frozen=True, eq=False)
class BucketScores:
    """Figures of every bucket, for label 0 and 1 (buckets, 2), and how far each may be off."""

    mean: Floats
    """The mean predicted probability (buckets,)."""
    losses: Floats
    """The mean negative log-probability of such a label."""
    loss_doubt: Floats
    right: Floats
    """How often the likelier label is this one."""
    right_doubt: Floats
    auc: Floats
    """How often a one of this bucket has a higher score than a zero of it (buckets,)."""
    auc_doubt: Floats

    @classmethod
    def evenly(cls, edges: Floats) -> Self:
        """Of probabilities that lie anywhere between the edges."""
        low, high = edges[:-1], edges[1:]
        inner = np.stack([low + (high - low) * part for part in (np.arange(_POINTS) + 0.5) / _POINTS])
        losses = -np.log(np.stack([1 - inner, inner], axis=2))
        likely, half = low + high >= 1, np.full(len(low), 0.5)
        split = 0.5 * ((low < 0.5 - _CLOSE) & (high > 0.5 + _CLOSE))
        right = np.stack([~likely, likely], axis=1).astype(float)
        doubt = np.stack([split, split], axis=1)
        return cls((low + high) / 2, losses.mean(axis=0), losses.std(axis=0), right, doubt, half, half)

    @classmethod
    def of_rows(cls, logits: Floats, buckets: NDArray[np.int64], count: int) -> Self:
        """Of the rows with these logits, each in its bucket."""
        scores, where, rows = np.unique(logits, return_index=True, return_counts=True)
        bucket, one = buckets[where], 1 / (1 + np.exp(-np.clip(scores, -700, 700)))

        def total(numbers: Floats) -> Floats:
            return np.stack([np.bincount(bucket, own, minlength=count) for own in numbers.T], axis=1)

        as_rows = np.stack([rows, rows], axis=1).astype(np.float64)
        as_said = as_rows * np.stack([1 - one, one], axis=1)
        lost = np.stack([np.logaddexp(0, scores), np.logaddexp(0, -scores)], axis=1)
        correct = np.stack([scores < 0, scores >= 0], axis=1)
        even, said = np.maximum(total(as_rows), _TINY), np.maximum(total(as_said), _TINY)
        losses, right = total(as_said * lost) / said, total(as_said * correct) / said
        doubt = np.abs(losses - total(as_rows * lost) / even)
        # Zeros below a score in its own bucket, ties half.
        zeros = as_said[:, 0]
        below = np.cumsum(zeros) - zeros / 2
        below -= (np.cumsum(said[:, 0]) - said[:, 0])[bucket]
        inside = np.bincount(bucket, as_said[:, 1] * below, minlength=count) / (said[:, 0] * said[:, 1])
        auc = np.where((said > _TINY).all(axis=1), inside, 0.5)
        mean = said[:, 1] / even[:, 1]
        return cls(mean, losses, doubt, right, np.minimum(right, 1 - right), auc, np.abs(auc - 0.5))
