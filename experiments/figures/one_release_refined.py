"""Labels of cells from two releases of half the ε each: the second looks closer where the first was unsure.

Beside one release of the whole ε. Run by the figure of one release.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans
from torch import nn

from maskedlark.fitting import CellLabels, clusters, soft_labels
from maskedlark.fitting.cell_labels import CellsRequest
from maskedlark.fitting.clusters import Clusters, Space
from maskedlark.fitting.maps import Bytes, Map
from maskedlark.fitting.soft_labels import Counts, Graph, Soft
from maskedlark.functions.cells import Cells
from maskedlark.training.public_rows import first_noise
from maskedlark.workflow import Workflow

UNSURE = 0.25
"""The part of the rows, those whose likeliest label is least likely, that gets cells of its own."""
_STEPS = 20


@dataclass(frozen=True)
class Twice:
    """What both releases say."""

    soft: Soft
    noise: float
    """Of each."""
    charged: float
    """By both."""
    cells: int
    second_cells: int


@dataclass(frozen=True, eq=False)
class Finer(CellsRequest):
    """The same question in other cells."""

    other: Clusters

    @cached_property
    def clusters(self) -> Clusters:
        """Those that were given."""
        return self.other


def twice(
    client: Workflow, tag: str, rows: Bytes, space: nn.Module | Map | None, half: float, seed: int
) -> Twice:
    """Ask at half of ε, look where that leaves doubt, and ask once more."""
    first = request(client, tag, rows, space, half, seed)
    graph = Graph.of(first.points, first.estimator.neighbours, seed)
    told = client.ask(Cells(), first.arguments, epsilon=half)
    counts = first.counts(told)
    soft = soft_labels.smooth(counts, first.clusters, graph)
    same = {each.name: getattr(first, each.name) for each in fields(first)}
    second = Finer(**same, other=finer(first, soft.max(axis=1), seed))
    again = client.ask(Cells(), second.arguments, epsilon=half)
    steps = towards(counts, first.clusters), towards(second.counts(again), second.clusters)
    for _ in range(soft_labels.ROUNDS):
        soft = graph.mean @ soft
        for step in steps:
            soft = step(soft)
    paid = told.balance.charged_epsilon + again.balance.charged_epsilon
    return Twice(soft, again.noise, paid, first.clusters.count, second.clusters.count)


def request(
    client: Workflow, tag: str, rows: Bytes, space: nn.Module | Map | None, epsilon: float, seed: int
) -> CellsRequest:
    """What `CellLabels` asks."""
    document, digests = client.frozen_to_train(None)
    return CellsRequest(
        CellLabels(client, tag, epsilon=epsilon, seed=seed),
        document,
        rows,
        Space.of(space, rows),
        first_noise(document, Cells.name, tag, None, epsilon),
        client.records(document, digests, tag),
    )


def finer(first: CellsRequest, sure: NDArray[np.floating[Any]], seed: int) -> Clusters:
    """The first release's cells, and new ones among them for the unsure rows, of half as many rows each."""
    rows = np.flatnonzero(sure <= np.quantile(sure, UNSURE))
    count = max(1, round(2 * first.count * len(rows) / len(sure)))
    made = KMeans(count, init="random", n_init=1, max_iter=_STEPS, random_state=seed).fit(first.points[rows])
    centroids = np.concatenate([_means(first), made.cluster_centers_]).astype(np.float64)
    found = _cells(first, centroids)
    return _cells(first, centroids[found.sizes >= first.document.k / first.behind])


def _means(asked: CellsRequest) -> NDArray[np.float64]:
    """The middle of every cell."""
    own = asked.clusters
    sums = _members(own) @ asked.points
    found: NDArray[np.float64] = sums / np.maximum(own.sizes, 1)[:, None]
    return found


def _members(own: Clusters) -> sparse.csr_array:
    """(cells, rows): who is in which."""
    count = len(own.cells)
    ones, ends = np.ones(count, np.float32), np.arange(count + 1)
    return sparse.csr_array((ones, own.cells, ends), (count, own.count)).T.tocsr()


def _cells(asked: CellsRequest, centroids: NDArray[np.float64]) -> Clusters:
    network, weights = asked.space.sent(centroids)
    return Clusters(network, weights, clusters.run(network, weights, asked.rows))


def towards(counts: Counts, own: Clusters) -> Callable[[Soft], Soft]:
    """One release's part of a round of smoothing, as `soft_labels.smooth` has it."""
    sizes, members = np.maximum(own.sizes, 1).astype(np.float64), _members(own)
    weight = soft_labels.SPREAD / (soft_labels.SPREAD + (counts.deviation / sizes) ** 2)
    gain = np.where(counts.known, soft_labels.GAIN * weight, 0.0) / sizes

    def step(soft: Soft) -> Soft:
        lack = gain[:, None] * (counts.numbers - members @ soft)
        return soft_labels.project(soft + lack.astype(np.float32)[own.cells])

    return step
