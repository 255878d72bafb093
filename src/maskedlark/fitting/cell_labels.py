"""Labels for any model: rows are clustered, helpers count labels in every cluster once, rows get soft labels.

    labels = CellLabels(client, tag="Digits", epsilon=0.5)
    print(labels.plan(rows))        ε, cells and noise; nothing is spent
    labels.fit(rows)                one release; the same fit again costs nothing
    labels.soft_, labels.error_     (n, classes), to train any model with, and what is known of their error

Run by the ad server.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered
from maskedlark.core.labels import LabelSpace
from maskedlark.dp import intervals
from maskedlark.errors import BadArguments
from maskedlark.exact.cells import Largest
from maskedlark.features.encoder import Encoder
from maskedlark.fitting import maps, mismatch, moments_request, options, soft_labels
from maskedlark.fitting.clusters import Clusters, Points, Space
from maskedlark.fitting.estimators import Released
from maskedlark.fitting.maps import Bytes, Map
from maskedlark.fitting.plan import ANSWERED
from maskedlark.fitting.soft_labels import Counts, Graph, LabelError, Soft
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.cells import (
    MAX_NUMBERS,
    Cells,
    CellsArguments,
    CellTable,
    DescribedLargest,
    DescribedTable,
)
from maskedlark.parameters.document import Document
from maskedlark.release.errors import TooFewRecords
from maskedlark.training.planned_release import PlannedRelease
from maskedlark.training.predictor import check_encoder
from maskedlark.training.public_rows import asked_rows, encoded, first_noise, real_error

SIZE = 6
"""Records of a cell, in deviations of the noise in one of its counts. Found on MNIST; flat around it."""
SMALLEST = 2
"""Records of a cell, in k: clusters differ in size, and those below k are absent."""


@dataclass(frozen=True, eq=False)
class CellsRequest:
    """What will be asked, and the rows that it is about."""

    estimator: "CellLabels"
    document: Document
    rows: Bytes
    space: Space
    noise: float
    records: int
    """The helpers', with fakes."""

    @property
    def label(self) -> LabelSpace:
        """The values that the label can have."""
        return self.document.trained(self.estimator.tag).labels[self.estimator.label].space()

    @property
    def ones(self) -> bool:
        """Of a binary label 1 alone is asked, at half the sensitivity: 0 is the rest of the rows."""
        return self.label.values == (0, 1)

    @property
    def real_records(self) -> float:
        """How many of the helpers' records are expected to be real."""
        return self.records / (1 + self.document.fakes_of(self.estimator.tag))

    @property
    def behind(self) -> float:
        """How many real records of the helpers stand behind one row."""
        return self.real_records / len(self.rows)

    def deviation(self, noise: float) -> float:
        """The deviation of all helpers' noise in one count."""
        kind, helpers = self.document.mechanism(Cells.name).kind, len(self.document.helpers)
        table = CellTable(self.estimator.label, self.label, Largest(0, 1), self.ones)
        return intervals.standard_error(kind, noise, table.column(1).sensitivity, helpers)

    @cached_property
    def count(self) -> int:
        """How many clusters are sought: as noise and k allow, or as told."""
        fits = min(
            self.space.most_cells, MAX_NUMBERS // (1 if self.ones else len(self.label)), len(self.rows)
        )
        given = self.estimator.cells
        if given is not None:
            if not 1 <= given <= fits:
                raise BadArguments(f"cells={given}: 1 to {fits} fit")
            return given
        size = max(SIZE * self.deviation(self.noise), SMALLEST * self.document.k)
        return int(min(max(self.real_records // size, 1), fits))

    @cached_property
    def points(self) -> Points:
        """The rows in the space."""
        return self.space.points(self.rows)

    @cached_property
    def clusters(self) -> Clusters:
        """The cells."""
        least = self.document.k / self.behind
        return Clusters.find(self.space, self.rows, self.points, self.count, least, self.estimator.seed)

    @property
    def table(self) -> DescribedTable:
        """What is counted."""
        cells = DescribedLargest(count=self.clusters.count)
        return DescribedTable(label=self.estimator.label, cells=cells, ones=self.ones)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """As helpers get them."""
        return CellsArguments(
            tag=self.estimator.tag,
            model=described.describe(self.clusters.network),
            weights=weights.to_text(self.clusters.weights),
            tables=(self.table,),
        ).model_dump(mode="json")

    def counts(self, answered: Answered) -> Counts:
        """The answer, as if all records were the rows."""
        (table,) = answered.tables
        numbers = self.table.dense(table.rows, table.columns[0]) / self.behind
        known = np.zeros(len(numbers), bool)
        known[np.array([row[0] for row in table.rows], np.intp)] = True
        if self.ones:
            numbers = np.concatenate([self.clusters.sizes[:, None] - numbers, numbers], axis=1)
        deviation = self.deviation(answered.noise) / self.behind
        return Counts(numbers, known, deviation, answered.kind, answered.helpers, self.ones)


@dataclass(frozen=True)
class CellPlan(PlannedRelease):
    """A count of labels in cells that was not asked."""

    cells: int
    size: float
    """The mean of a cell, in records."""
    deviation: float
    """Of all helpers' noise in one count."""
    rows: int
    records: int
    real_records: float

    def __str__(self) -> str:
        paid = self.explained
        cost = ANSWERED if self.is_answered else paid.cost
        differ = mismatch.differ(self.rows, self.real_records)
        said = f"\n{mismatch.said(self.rows, self.records, self.real_records)}" if differ else ""
        return (
            f"labels counted in {self.cells:,} cells of {self.size:,.0f} records on average; "
            f"{self.records:,} records, of which {self.real_records:,.0f} are expected to be real; "
            f"{self.rows:,} rows here\n"
            f"{cost}\n"
            f"{paid.kind} noise of {paid.helpers} helpers: a count is off by {self.deviation:.3g}, a label's "
            f"share in a cell by {self.deviation / self.size:.2g} (standard errors). Nothing was spent{said}"
        )


class CellLabels(ClassifierMixin, Released):  # type: ignore[misc]
    """Soft labels of the caller's own rows, from one release of labels counted in cells."""

    score = Released.score

    def __init__(
        self,
        client: Client,
        tag: str,
        *,
        epsilon: float | None = None,
        noise: float | None = None,
        label: int = 0,
        datasets: Sequence[str] | None = None,
        encoder: Encoder | None = None,
        space: nn.Module | Map | None = None,
        cells: int | None = None,
        neighbours: int = 10,
        seed: int = 0,
    ) -> None:
        """`client`: the ad server's. `tag`: the declared model.

        `epsilon`: what the release may cost; or `noise`, its multiplier; neither: the document's floor.
        `label`: which of the model's labels, binary or categorical. `datasets`: all that are frozen by
        default. `encoder`: the one that made browsers' bytes; without it, rows are bytes. `space`: where rows
        are compared, a network that helpers can run too, made without labels (`examples/`), or a map of
        `fitting`; by default principal components of bytes, and of a table with its encoder, if it is not too
        wide, the map `buckets`. `cells`: how many; chosen by default. `neighbours`: over how many labels are
        smoothed, 0 for none. `seed`: of all that is drawn here.
        """
        self.client, self.tag, self.epsilon, self.noise = client, tag, epsilon, noise
        self.label, self.datasets, self.encoder = label, datasets, encoder
        self.space, self.cells, self.neighbours, self.seed = space, cells, neighbours, seed

    def plan(self, X: Any) -> CellPlan:  # noqa: ANN401, N803 - a table
        """What `fit` would cost, and in how many cells it counts. Spends nothing."""
        asked = self._request(X)
        question = Cells(), asked.arguments, self.datasets, self.noise, self.epsilon
        price, is_answered = self.client.price(*question, reuse=True), self.client.is_answered(*question)
        cells, real = asked.clusters.count, asked.real_records
        deviation = asked.deviation(price.noise)
        return CellPlan(
            price, is_answered, cells, real / cells, deviation, len(asked.rows), asked.records, real
        )

    def fit(self, X: Any, y: None = None) -> Self:  # noqa: ANN401, N803
        """Ask helpers once, and label the rows. The same rows and settings again cost nothing."""
        self._refuse_to_fit(y)
        asked = self._request(X)
        asked.arguments  # noqa: B018 - refuses what cannot be asked, before the graph takes its time
        # The graph before the charge: what fails for lack of memory fails here.
        graph = Graph.of(asked.points, self.neighbours, self.seed)
        answered = self.client.ask(
            Cells(), asked.arguments, self.datasets, self.noise, self.epsilon, reuse=True
        )
        self._label(asked, asked.counts(answered), graph)
        self.receipts_, self.answered_ = answered.receipts, answered  # The last is what makes it fitted.
        return self

    def _label(self, asked: CellsRequest, counts: Counts, graph: Graph) -> None:
        clusters, real = asked.clusters, asked.real_records
        uncounted = real_error(asked.document.fakes_of(self.tag), real)
        missing = abs(1 / real - 1 / len(asked.rows)) / 4, uncounted
        self.cells_, self.counts_ = clusters.cells, counts.numbers
        self.soft_: Soft = soft_labels.smooth(counts, clusters, graph)
        self.error_: LabelError = soft_labels.error(counts, clusters, graph, *missing, self.seed)
        self.classes_ = np.array(asked.label.values)
        self.space_, self._known = asked.space, (asked.points[graph.reference], self.soft_[graph.reference])
        self._counted(asked)

    def predict_proba(self, X: Any) -> Soft:  # noqa: ANN401, N803
        """The mean soft label of the nearest rows of `fit`: (n, classes)."""
        check_is_fitted(self)
        rows = encoded(X, self.encoder, self.n_features_in_)
        neighbours = min(max(1, self.neighbours), len(self._known[0]))
        return soft_labels.nearest_mean(*self._known, self.space_.points(rows), neighbours)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: ANN401, N803
        """The likeliest class. A model trained on `soft_` serves better."""
        likeliest: NDArray[np.int64] = self.predict_proba(X).argmax(axis=1)
        return likeliest

    def _request(self, table: Any) -> CellsRequest:  # noqa: ANN401
        """Check everything, without a charge."""
        options.check(self.get_params(deep=False))
        document, digests = self.client.frozen_to_train(self.datasets)
        declared = document.trained(self.tag)
        moments_request.family_of(declared, self.label, None)
        check_encoder(declared, self.encoder)
        noise = first_noise(document, Cells.name, self.tag, self.noise, self.epsilon)
        rows = asked_rows(table, self.encoder, described.byte_features(document, self.tag))
        records = self.client.records(document, digests, self.tag)
        if records < document.k:
            raise TooFewRecords(f"{records} records of {self.tag}, and k is {document.k}")
        space = self.space
        if space is None and self.encoder is not None:
            space = _buckets(rows, self.encoder.names, self.seed)
        return CellsRequest(self, document, rows, Space.of(space, rows), noise, records)


def _buckets(rows: Bytes, names: Sequence[str], seed: int) -> Map | None:
    """The map of a table; None, so principal components, of one so wide that centroids would not fit."""
    with suppress(BadArguments):
        buckets = maps.fit(rows, names, "buckets", seed)
        return buckets if buckets.size <= maps.MAX_WEIGHTS // 2 else None
    return None
