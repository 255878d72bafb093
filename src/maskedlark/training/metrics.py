"""Measures of a model from a noisy histogram of (score bucket, label), with error bars.

Run by the ad server. Error bars are standard errors from the noise of all helpers, propagated to first order
(AUC: second), and, separately, the uncertainty from not knowing where in its bucket a score lies.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_CLOSE = 1e-9
"""Edges this close are the same."""


@dataclass(frozen=True)
class Measure:
    """A number, its standard error from noise, and its likely error from buckets."""

    value: float
    error: float
    coarse: float = 0.0

    def within(self, truth: float, errors: float = 3.0) -> bool:
        """Whether the truth lies within `errors` standard errors plus the error from buckets."""
        return abs(self.value - truth) <= errors * self.error + self.coarse

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {2 * self.error + self.coarse:.4f}"


@dataclass(frozen=True, eq=False)
class _Histogram:
    """How many records lie in each cell, with noise."""

    counts: Floats
    deviation: float
    """The standard deviation of the noise of all helpers in one cell."""

    @property
    def _total(self) -> float:
        return max(float(self.counts.sum()), 1.0)

    def _mean(self, of_cell: Floats, coarse: float = 0.0) -> Measure:
        """The mean over records of a number that depends only on their cell."""
        value = float((self.counts * of_cell).sum()) / self._total
        slope = (of_cell - value) / self._total
        return Measure(value, self.deviation * math.sqrt(float((slope * slope).sum())), coarse)


@dataclass(frozen=True, eq=False)
class Binary(_Histogram):
    """A binary label: records of label 0 and 1 per bucket of predicted probability; counts (buckets, 2)."""

    edges: Floats
    """The bucket edges, from 0 to 1, one more than buckets."""

    def __str__(self) -> str:
        return f"AUC {self.auc}, log-loss {self.log_loss}, accuracy {self.accuracy}"

    @property
    def records(self) -> Measure:
        """The number of records."""
        return Measure(float(self.counts.sum()), self.deviation * math.sqrt(self.counts.size))

    @property
    def accuracy(self) -> Measure:
        """How often the likelier label was the true one."""
        low, high = self.edges[:-1], self.edges[1:]
        likely = low + high >= 1
        split = float(np.abs(self.counts[(low < 0.5 - _CLOSE) & (high > 0.5 + _CLOSE)]).sum())
        right = np.stack([~likely, likely], axis=1).astype(float)
        return self._mean(right, split / self._total / 2)

    @property
    def log_loss(self) -> Measure:
        """The mean negative log-probability of the true label, with scores spread evenly in buckets."""
        low, high = self.edges[:-1], self.edges[1:]
        inner = np.stack([low + (high - low) * part for part in (np.arange(16) + 0.5) / 16])
        losses = -np.log(np.stack([1 - inner, inner], axis=2))
        spread = losses.std(axis=0)
        # A score may be anywhere in its bucket; all on the same side is the worst likely case.
        coarse = float((np.clip(self.counts, 0, None) * spread).sum() / self._total)
        return self._mean(losses.mean(axis=0), coarse)

    @property
    def auc(self) -> Measure:
        """How often a record of label 1 has a higher score than one of label 0; ties count half."""
        zeros, ones = self.counts[:, 0], self.counts[:, 1]
        below, above = np.cumsum(zeros) - zeros / 2, ones[::-1].cumsum()[::-1] - ones / 2
        pairs = max(float(zeros.sum()), 1.0) * max(float(ones.sum()), 1.0)
        value = float(ones @ below) / pairs
        of_one = (below - value * zeros.sum()) / pairs
        of_zero = (above - value * ones.sum()) / pairs
        buckets = len(self.counts)
        second = self.deviation**2 * math.sqrt(buckets * (buckets - 1) / 2 + buckets / 4) / pairs
        first = self.deviation * math.sqrt(float(of_one @ of_one + of_zero @ of_zero))
        ties = float(np.clip(zeros, 0, None) @ np.clip(ones, 0, None)) / pairs / 2
        return Measure(value, math.hypot(first, second), ties)

    def calibration(self, least: float = 0.0) -> list[tuple[float, Measure]]:
        """For every bucket of at least `least` records: its middle, and the share of label 1."""
        buckets = []
        for low, high, (zero, one) in zip(self.edges, self.edges[1:], self.counts, strict=False):
            total = float(zero + one)
            if total >= max(least, 4 * self.deviation, 1.0):
                part = float(one) / total
                error = self.deviation * math.sqrt(part**2 + (1 - part) ** 2) / total
                buckets.append((float(low + high) / 2, Measure(part, error)))
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
