"""Measures of a model from a noisy histogram of (score bucket, label), with error bars.

Run by the ad server. Error bars are standard errors from the noise of all helpers, propagated to first order
(AUC: second), and, separately, the uncertainty from not knowing where in its bucket a score lies.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maskedlark.training.bucket_scores import BucketScores, Floats


@dataclass(frozen=True)
class Measure:
    """A number, its standard error from noise, and its likely error from buckets."""

    value: float
    error: float
    coarse: float = 0.0

    def within(self, truth: float, errors: float = 3.0) -> bool:
        """Whether the truth lies within `errors` standard errors plus the error from buckets."""
        return abs(self.value - truth) <= errors * self.error + self.coarse

    @property
    def half_width(self) -> float:
        """Two standard errors, and the error from buckets."""
        return 2 * self.error + self.coarse

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.half_width:.4f}"


@dataclass(frozen=True, eq=False)
class _Histogram:
    """How many records lie in each cell, with noise."""

    counts: Floats
    deviation: float
    """The standard deviation of the noise of all helpers in one released number."""

    @property
    def _total(self) -> float:
        return max(float(self.counts.sum()), 1.0)

    def _noise(self, slopes: Floats) -> float:
        """The standard error of a figure that grows by these slopes with the counts."""
        return self.deviation * math.sqrt(float((slopes * slopes).sum()))

    def _mean(self, of_cell: Floats, coarse: float = 0.0) -> Measure:
        """The mean over records of a number that depends only on their cell."""
        value = float((self.counts * of_cell).sum()) / self._total
        return Measure(value, self._noise((of_cell - value) / self._total), coarse)


@dataclass(frozen=True, eq=False)
class Binary(_Histogram):
    """A binary label: records of label 0 and 1 per bucket of predicted probability; counts (buckets, 2)."""

    edges: Floats
    """The bucket edges, from 0 to 1, one more than buckets."""
    known: BucketScores | None = None
    """Of the caller's own rows, if there are any; else scores are taken to lie evenly in their bucket."""
    total_error: float | None = None
    """Given if only ones were released, and zeros are the rest of the rows: how far the number of records
    may be off, as a share of it."""

    def __str__(self) -> str:
        return f"AUC {self.auc}, log-loss {self.log_loss}, accuracy {self.accuracy}"

    def _noise(self, slopes: Floats) -> float:
        if self.total_error is None:
            return super()._noise(slopes)
        scaled = float(self.counts.sum(axis=1) @ slopes[:, 0])
        # A one more is a zero less.
        return math.hypot(super()._noise(slopes[:, 1] - slopes[:, 0]), self.total_error * scaled)

    @cached_property
    def scores(self) -> BucketScores:
        """What is known of the scores in every bucket."""
        return BucketScores.evenly(self.edges) if self.known is None else self.known

    @property
    def records(self) -> Measure:
        """The number of records."""
        return Measure(float(self.counts.sum()), self._noise(np.ones_like(self.counts)))

    @property
    def base_rate(self) -> Measure:
        """The share of label 1."""
        return self._mean(np.broadcast_to([0.0, 1.0], self.counts.shape))

    @property
    def accuracy(self) -> Measure:
        """How often the likelier label was the true one."""
        doubt = float((np.abs(self.counts) * self.scores.right_doubt).sum())
        return self._mean(self.scores.right, doubt / self._total)

    @property
    def log_loss(self) -> Measure:
        """The mean negative log-probability of the true label."""
        # All scores on the same side of their bucket is the worst likely case.
        doubt = float((np.clip(self.counts, 0, None) * self.scores.loss_doubt).sum())
        return self._mean(self.scores.losses, doubt / self._total)

    @property
    def auc(self) -> Measure:
        """How often a record of label 1 has a higher score than one of label 0; ties count half."""
        zeros, ones = self.counts[:, 0], self.counts[:, 1]
        inside = self.scores.auc
        below = np.cumsum(zeros) - zeros * (1 - inside)
        above = ones[::-1].cumsum()[::-1] - ones * (1 - inside)
        pairs = max(float(zeros.sum()), 1.0) * max(float(ones.sum()), 1.0)
        value = float(ones @ below) / pairs
        slopes = np.stack([above - value * ones.sum(), below - value * zeros.sum()], axis=1) / pairs
        buckets = len(self.counts)
        second = self.deviation**2 * math.sqrt(buckets * (buckets - 1) / 2 + buckets / 4) / pairs
        ties = np.clip(zeros, 0, None) * np.clip(ones, 0, None)
        coarse = float(ties @ self.scores.auc_doubt) / pairs
        return Measure(value, math.hypot(self._noise(slopes), second), coarse)

    def calibration(self, least: float = 0.0) -> list[tuple[float, Measure]]:
        """For every bucket of at least `least` records: the mean prediction, and the share of label 1."""
        buckets = []
        for mean, (zero, one) in zip(self.scores.mean.tolist(), self.counts, strict=True):
            total = float(zero + one)
            if total >= max(least, 4 * self.deviation, 1.0):
                part = float(one) / total
                noise = (
                    self.deviation
                    if self.total_error is not None
                    else self.deviation * math.sqrt(part**2 + (1 - part) ** 2)
                )
                buckets.append((mean, Measure(part, noise / total)))
        return buckets


@dataclass(frozen=True, eq=False)
class Classes(_Histogram):
    """A categorical label: the confusion matrix (predicted, true)."""

    def __str__(self) -> str:
        return f"accuracy {self.accuracy}"

    @property
    def accuracy(self) -> Measure:
        """How often the likeliest class was the true one, among records that were counted."""
        return self._mean(np.eye(len(self.counts)))


@dataclass(frozen=True, eq=False)
class Values(_Histogram):
    """A numeric label: records of each value per bucket of predicted value; counts (buckets, values)."""

    edges: Floats
    """The bucket edges; predictions outside count in the first or last bucket."""
    values: Floats

    def __str__(self) -> str:
        return f"squared error {self.squared_error}, bias {self.bias}"

    @property
    def squared_error(self) -> Measure:
        """The mean of (prediction - value)^2, taking the middle of the bucket as the prediction."""
        apart, half = np.abs(self._middles[:, None] - self.values[None, :]), self._halves[:, None]
        coarse = self._mean(half * (2 * apart + half))
        return self._mean(apart**2, max(coarse.value, 0.0))

    @property
    def bias(self) -> Measure:
        """The mean of prediction - value."""
        coarse = self._mean(np.broadcast_to(self._halves[:, None], self.counts.shape))
        return self._mean(self._middles[:, None] - self.values[None, :], max(coarse.value, 0.0))

    @property
    def _middles(self) -> Floats:
        return (self.edges[:-1] + self.edges[1:]) / 2

    @property
    def _halves(self) -> Floats:
        """Half of every bucket's width."""
        return np.diff(self.edges) / 2


LabelMeasures = Binary | Classes | Values
"""The result of an evaluation for one label."""
