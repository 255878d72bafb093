"""Buckets of predicted scores: by quantiles of the ad server's own rows, or evenly where it has none.

Helpers count records by them. Chosen without labels. Run by the ad server.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.labels import LabelSpace
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.functions.cells import DescribedBuckets, DescribedLargest, DescribedTable
from maskedlark.training.bucket_scores import BucketScores, Floats
from maskedlark.training.metrics import Binary, Classes, LabelMeasures, Values

BUCKETS = 20
"""Of labels that are numbers, and where the caller has no rows."""
_ROOM = 1.2
"""Times k: nobody knows how many records there are of so many rows."""
_TRIED = (5, 10, 15, 20, 30, 40, 60, 80, 120)


@dataclass(frozen=True, eq=False)
class LabelTable:
    """One label's histogram: where scores are cut, and what is known of the rows in every bucket."""

    loss: Loss
    space: LabelSpace
    place: int
    """Of the label."""
    output: int
    """Of the network, the label's first."""
    edges: tuple[float, ...]
    """Of scores, ascending; not of classes."""
    outputs: Floats | None
    """Of the caller's rows, all of the label's: (n, outputs)."""
    behind: float
    """How many records are expected to stand behind one row."""
    total_error: float | None
    """Given if only ones are asked for, and zeros are the rest of the rows (`Binary.total_error`)."""

    @property
    def ones(self) -> bool:
        """Whether only ones are asked for: half of the noise suffices."""
        return self.total_error is not None

    @property
    def described(self) -> DescribedTable:
        """What helpers count."""
        cells: DescribedLargest | DescribedBuckets = DescribedBuckets(output=self.output, edges=self.edges)
        if isinstance(self.loss, SoftmaxCrossEntropy):
            cells = DescribedLargest(first=self.output, count=self.loss.classes)
        return DescribedTable(label=self.place, cells=cells, ones=self.ones)

    def cut(self, buckets: int, least: float = 0) -> "LabelTable":
        """The same in about so many buckets of as many rows each; an even chance is an edge, from `least`."""
        assert self.outputs is not None
        scores = np.sort(self.outputs[:, 0])
        places = np.arange(1, buckets) * len(scores) // buckets
        edges = {float(each) for each in scores[places] if each > scores[0]}
        below = int(np.searchsorted(scores, 0.0))
        if isinstance(self.loss, BinaryCrossEntropy) and min(below, len(scores) - below) >= max(least, 1):
            # Helpers would join a bucket of fewer than k to its neighbour, perhaps across an even chance.
            rows = {each: abs(int(np.searchsorted(scores, each)) - below) for each in edges}
            edges = {0.0} | {each for each in edges if rows[each] >= _ROOM * least}
        return replace(self, edges=tuple(sorted(edges)))

    def finest(self, deviation: float, k: float) -> "LabelTable":
        """Cut where AUC and log-loss are off least: many buckets have more noise, few say less of order."""
        assert self.outputs is not None
        most = len(self.outputs) * self.behind / (2 * k)
        tried = [self.cut(each, k / self.behind) for each in _TRIED if each <= max(most, _TRIED[0])]
        return min(tried, key=lambda each: each._doubt(deviation))

    def _doubt(self, deviation: float) -> float:
        expected = self.expected(deviation)
        assert isinstance(expected, Binary)
        return expected.auc.half_width + expected.log_loss.half_width

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The bucket of every row."""
        assert self.outputs is not None
        return np.searchsorted(np.array(self.edges), self.outputs[:, 0], side="right")

    def expected(self, deviation: float) -> LabelMeasures:
        """The measures if labels are as likely as the model says, with noise of this deviation."""
        assert self.outputs is not None
        if isinstance(self.loss, SoftmaxCrossEntropy):
            likely = np.exp(self.outputs - self.outputs.max(axis=1, keepdims=True))
            likely /= likely.sum(axis=1, keepdims=True)
            square = np.zeros((self.loss.classes, self.loss.classes))
            np.add.at(square, self.outputs.argmax(axis=1), likely * self.behind)
            return Classes(square, deviation)
        scores, count = self.outputs[:, 0], len(self.edges) + 1
        rows = np.bincount(self.cells, minlength=count) * self.behind
        if isinstance(self.loss, BinaryCrossEntropy):
            chance = 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
            ones = np.bincount(self.cells, chance, minlength=count) * self.behind
            return self._binary(np.stack([rows - ones, ones], axis=1), deviation, np.arange(count))
        values = np.array(self.space.values, np.float64)
        counts = np.zeros((count, len(values)))
        nearest = np.abs(scores[:, None] - values[None]).argmin(axis=1)
        np.add.at(counts, (self.cells, nearest), self.behind)
        return Values(counts, deviation, self._value_edges(count), values)

    def measured(self, counts: Floats, deviation: float, first: NDArray[np.intp] | None) -> LabelMeasures:
        """The measures from what was released: (cells, labels). `first`: where runs of buckets begin."""
        if isinstance(self.loss, SoftmaxCrossEntropy):
            # One column per class, even for classes that no label can have.
            square = np.zeros((self.loss.classes, self.loss.classes))
            square[:, list(self.space.values)] = counts
            return Classes(square, deviation)
        begin = np.arange(len(counts)) if first is None else first
        counts = counts[begin]
        if isinstance(self.loss, BinaryCrossEntropy):
            if self.ones:
                rows = np.bincount(self._runs(begin), minlength=len(begin)) * self.behind
                counts = np.stack([rows - counts[:, 0], counts[:, 0]], axis=1)
            return self._binary(counts, deviation, begin)
        edges = self._value_edges(len(self.edges) + 1)[[*begin, -1]]
        return Values(counts, deviation, edges, np.array(self.space.values, np.float64))

    def _runs(self, first: NDArray[np.intp]) -> NDArray[np.int64]:
        """The run of buckets that every row is in."""
        return np.maximum(np.searchsorted(first, self.cells, side="right") - 1, 0)

    def _binary(self, counts: Floats, deviation: float, first: NDArray[np.intp]) -> Binary:
        inner = 1 / (1 + np.exp(-np.clip(np.array(self.edges), -700, 700)))
        edges, known = np.concatenate([[0.0], inner, [1.0]])[[*first, -1]], None
        if self.outputs is not None:
            known = BucketScores.of_rows(self.outputs[:, 0], self._runs(first), len(first))
        return Binary(counts, deviation, edges, known, self.total_error)

    def _value_edges(self, buckets: int) -> Floats:
        """With both ends: those of the label's range, or of the rows."""
        if self.outputs is None:
            return np.linspace(self.space.values[0], self.space.values[-1], buckets + 1)
        ends = self.outputs[:, 0].min(), self.outputs[:, 0].max()
        return np.concatenate([ends[:1], self.edges, ends[1:]])


def evenly(loss: Loss, space: LabelSpace, buckets: int) -> tuple[float, ...]:
    """Edges without rows: of probabilities from 0 to 1, or of values over the label's range."""
    if isinstance(loss, SoftmaxCrossEntropy):
        return ()
    if isinstance(loss, BinaryCrossEntropy):
        part = np.arange(1, buckets) / buckets
        return tuple((np.log(part) - np.log1p(-part)).tolist())
    return tuple(np.linspace(space.values[0], space.values[-1], buckets + 1)[1:-1].tolist())
