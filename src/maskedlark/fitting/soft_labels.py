"""From noisy counts of labels in cells to a soft label of every row. Post-processing: costs nothing.

Labels Q (n, classes) lie on the simplex, change little between neighbours, and in every cell add up to its
counts, but for noise. Each round takes the mean of the neighbours' labels, shares a part of what the cell's
counts still lack among its rows, and projects every row on the simplex. Run by the ad server.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from maskedlark.dp.mechanisms import Kind
from maskedlark.fitting.clusters import Clusters, Points
from maskedlark.fitting.maps import Floats

Soft = NDArray[np.float32]
BLOCK = 50_000
"""Neighbours are sought among so many rows, taken at random: time grows with rows, not with their square."""
GAIN, SPREAD = 0.3, 0.03
"""The part of a cell's lack that a round makes good, where noise is small against SPREAD, the variance that
is expected between a cell's counts and its neighbours' labels, per row. Found on MNIST; flat around it."""
ROUNDS = 20
_NORMAL = 1.96


_Reals = TypeVar("_Reals", Floats, Soft)


def project(numbers: _Reals, totals: Floats | float = 1.0) -> _Reals:
    """The nearest points of the simplices of these totals, by least squares; one per row."""
    whole = np.broadcast_to(np.asarray(totals, numbers.dtype), len(numbers))[:, None]
    ordered = -np.sort(-numbers, axis=1)
    over = np.cumsum(ordered, axis=1) - whole
    places = np.arange(1, numbers.shape[1] + 1, dtype=numbers.dtype)
    # The largest always stays, also where rounding says otherwise.
    last = np.maximum((ordered - over / places > 0).sum(axis=1), 1) - 1
    shift = over[np.arange(len(numbers)), last] / places[last]
    return np.maximum(numbers - shift[:, None], 0)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Graph:
    """Every row's nearest neighbours within its block."""

    mean: sparse.csr_array
    """(n, n): times labels, the mean of the neighbours'."""
    reference: NDArray[np.intp]
    """A block's rows: others are compared with them."""

    @classmethod
    def of(cls, points: Points, neighbours: int, seed: int) -> "Graph":
        """Exact within blocks. The rows' order is drawn: a block is like all rows."""
        count, order = len(points), np.random.default_rng(seed).permutation(len(points))
        blocks = np.array_split(order, -(-count // BLOCK))
        neighbours = min(neighbours, min(map(len, blocks)) - 1)
        nearest = np.arange(count)[:, None]  # Without neighbours a row keeps its own.
        if neighbours:
            nearest = np.empty((count, neighbours), np.intp)
            for block in blocks:
                nearest[block] = block[_nearest(points[block], None, neighbours)]
        share = np.full(nearest.size, 1 / nearest.shape[1], np.float32)
        ends = np.arange(0, nearest.size + 1, nearest.shape[1])
        return cls(sparse.csr_array((share, nearest.ravel(), ends), (count, count)), blocks[0])


def nearest_mean(known: Points, labels: Soft, points: Points, neighbours: int) -> Soft:
    """The mean label of the nearest known points."""
    means: Soft = labels[_nearest(known, points, neighbours)].mean(axis=1)
    return means


def _nearest(known: Points, points: Points | None, neighbours: int) -> NDArray[np.intp]:
    index = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(known)
    return index.kneighbors(points, return_distance=False)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Counts:
    """A release: of every cell the number of each label, as if all records were the caller's rows."""

    numbers: Floats
    """(cells, classes)."""
    known: NDArray[np.bool_]
    """(cells,): whether helpers answered it."""
    deviation: float
    """Of the noise of all helpers in one number, in rows."""
    kind: Kind
    helpers: int
    ones: bool
    """Whether only 1 was asked: numbers of 0 are what is left of the cell."""

    def noise(self, seed: int) -> Floats:
        """Another draw of the noise of all helpers."""
        rng, scale = np.random.default_rng(seed), self.deviation / np.sqrt(self.helpers)
        width = 1 if self.ones else self.numbers.shape[1]
        shape = self.helpers, len(self.numbers), width
        laplace = self.kind == "laplace"
        drawn = rng.laplace(0, scale / np.sqrt(2), shape) if laplace else rng.normal(0, scale, shape)
        noise: Floats = drawn.sum(axis=0)
        return np.concatenate([-noise, noise], axis=1) if self.ones else noise


def smooth(counts: Counts, clusters: Clusters, graph: Graph) -> Soft:
    """Soft labels of all rows."""
    cells, sizes = clusters.cells, np.maximum(clusters.sizes, 1).astype(np.float64)
    rows = np.arange(len(cells) + 1)
    members = sparse.csr_array((np.ones(len(cells), np.float32), cells, rows), (len(cells), len(sizes))).T
    start = project(counts.numbers, sizes) / sizes[:, None]
    known = counts.known & (clusters.sizes > 0)
    start[~known] = _overall(counts, sizes)
    gain = np.where(known, GAIN * SPREAD / (SPREAD + (counts.deviation / sizes) ** 2), 0.0) / sizes
    soft: Soft = start.astype(np.float32)[cells]
    for _ in range(ROUNDS):
        soft = graph.mean @ soft
        lack = gain[:, None] * (counts.numbers - members @ soft)
        soft = project(soft + lack.astype(np.float32)[cells])
    return soft


def _overall(counts: Counts, sizes: Floats) -> Floats:
    """The share of every class in all cells that were answered."""
    if not counts.known.any():
        return np.full(counts.numbers.shape[1], 1 / counts.numbers.shape[1])
    shares: Floats = counts.numbers[counts.known].sum(axis=0) / sizes[counts.known].sum()
    (share,) = project(shares[None])
    return share  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class LabelError:
    """What the release alone says of the error of soft labels. See `docs/CELLS.md`."""

    count: float
    """The standard deviation of the noise of all helpers in one count of a cell, in rows."""
    shares: Floats
    """Of every class's share of all rows (the sum of its counts): the standard error, (classes,)."""
    right: tuple[float, float]
    """The share of rows whose likeliest label is right: from the lower bound to the upper one, each with its
    95 % interval. Lower: if in every cell it were chance which rows have which label. Upper: what cells'
    counts allow. Both of labels from a release with √2 times the noise: those at hand are rather better."""


def error(
    counts: Counts, clusters: Clusters, graph: Graph, missing: float, real_error: float, seed: int
) -> LabelError:
    """Split the release in two: labels from one part, whose likeliest are held against the other.

    With noise η in the counts and ξ, another draw of the same law, H + η + ξ and H + η - ξ: given η + ξ, the
    mean of η - ξ is 0, because η and ξ can be exchanged. So a sum of the second part with weights that depend
    on the first is unbiased. `missing`: the variance of a share, by rows and records that differ;
    `real_error`: the error of how many records are real, by which all counts were scaled, as a part of it.
    """
    drawn, classes = counts.noise(seed), counts.numbers.shape[1]
    first = Counts(
        counts.numbers + drawn,
        counts.known,
        counts.deviation * np.sqrt(2),
        counts.kind,
        counts.helpers,
        counts.ones,
    )
    likeliest = smooth(first, clusters, graph).argmax(axis=1)
    known, sizes = counts.known, np.maximum(clusters.sizes, 1)[:, None]
    flat = np.bincount(clusters.cells * classes + likeliest, minlength=len(sizes) * classes)
    said, second = flat.reshape(-1, classes)[known], (counts.numbers - drawn)[known]
    rows = max(1, int(clusters.sizes[known].sum()))
    bounds = list[tuple[float, float]]()
    for weights in (said / sizes[known], (said > first.numbers[known]).astype(float)):
        fixed = 0.0 if not bounds else said[weights == 0].sum()
        moved = weights[:, 1] - weights[:, 0] if counts.ones else weights
        drawn_off = counts.deviation * np.sqrt(2) * np.linalg.norm(moved)
        scaled = real_error * (moved * (second[:, 1] if counts.ones else second)).sum()
        off = np.sqrt((drawn_off**2 + scaled**2) / rows**2 + missing)
        bounds.append(((fixed + (weights * second).sum()) / rows, _NORMAL * off))
    low, high = bounds[0][0] - bounds[0][1], bounds[1][0] + bounds[1][1]
    # Of a binary label, zeros are off by as much as ones.
    totals = counts.numbers[known][:, [1, 1] if counts.ones else slice(None)].sum(axis=0)
    variances = counts.deviation**2 * known.sum() + (real_error * totals) ** 2
    shares: Floats = np.sqrt(variances / rows**2 + missing)
    return LabelError(counts.deviation, shares, (float(max(low, 0.0)), float(min(high, 1.0))))
