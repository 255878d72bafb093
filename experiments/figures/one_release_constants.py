"""Constants of the package, each changed by itself: how much hangs on them, without a label of a test row.

Those of maps are chosen anew for every split of the table, by a part of the rows to fit with; those of cells
are compared on 5,000 of MNIST's rows to fit with. Labels in the clear choose here, which nobody has in life.
Run by the figure of one release.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from experiments.data import Split
from experiments.figures.one_release_refined import request
from maskedlark.fitting import cell_labels, clusters, maps, soft_labels
from maskedlark.fitting.soft_labels import Graph
from maskedlark.functions.cells import Cells
from maskedlark.workflow import Workflow


class Constants(NamedTuple):
    """Of labels of cells."""

    size: float = cell_labels.SIZE
    gain: float = soft_labels.GAIN
    spread: float = soft_labels.SPREAD
    rounds: int = soft_labels.ROUNDS
    neighbours: int = 10
    components: int = clusters.COMPONENTS


@contextmanager
def of_maps(changed: Mapping[str, float]) -> Iterator[None]:
    """While maps are made with these."""
    patched: dict[str, Any] = {name: value for name, value in changed.items() if name != "ridge"}
    patched["fit"] = partial(maps.fit, ridge=changed.get("ridge", maps.RIDGE))
    with mock.patch.multiple(maps, **patched):
        yield


def part(data: Split, share: float, seed: int) -> Split:
    """Of the rows to fit with, some to fit with and the others to test with."""
    order = np.random.default_rng([seed, 1]).permutation(len(data.labels))
    fitted, held = np.split(order, [round(share * len(order))])
    return Split(data.features[fitted], data.labels[fitted], data.features[held], data.labels[held])


class Held:
    """Labels of cells of one split, under any constants: what they have in common is found once."""

    def __init__(self, data: Split, client: Workflow, tag: str, seed: int) -> None:
        self.data, self.client, self.tag, self.seed = data, client, tag, seed
        self._graphs: dict[tuple[int, int], Graph] = {}
        self._asked: dict[tuple[float, float, int], Any] = {}

    def right(self, given: Constants, epsilon: float) -> tuple[float, float]:
        """Percent of the held-out rows whose nearest rows' mean label is right; and of the fitted rows."""
        asked, counts = self._release(given, epsilon)
        graph = self._graph(given, asked.points)
        with mock.patch.multiple(soft_labels, GAIN=given.gain, SPREAD=given.spread, ROUNDS=given.rounds):
            soft = soft_labels.smooth(counts, asked.clusters, graph)
        points = asked.space.points(self.data.test_features)
        known = asked.points[graph.reference], soft[graph.reference]
        chances = soft_labels.nearest_mean(*known, points, given.neighbours)
        return (
            100 * float((chances.argmax(axis=1) == self.data.test_labels).mean()),
            100 * float((soft.argmax(axis=1) == self.data.labels).mean()),
        )

    def _release(self, given: Constants, epsilon: float) -> Any:  # noqa: ANN401
        key = epsilon, given.size, given.components
        if key not in self._asked:
            sizes = mock.patch.object(cell_labels, "SIZE", given.size)
            with sizes, mock.patch.object(clusters, "COMPONENTS", given.components):
                asked = request(self.client, self.tag, self.data.features, None, epsilon, self.seed)
                answered = self.client.ask(Cells(), asked.arguments, epsilon=epsilon)
            self._asked[key] = asked, asked.counts(answered)
        return self._asked[key]

    def _graph(self, given: Constants, points: clusters.Points) -> Graph:
        key = given.neighbours, given.components
        if key not in self._graphs:
            self._graphs[key] = Graph.of(points, given.neighbours, self.seed)
        return self._graphs[key]
