"""How good a model is, on labels that nobody holds: one private query, and measures with error bars.

evaluated = client.evaluate(training, people, epsilon=0.5)
print(evaluated)                     AUC, log-loss, accuracy of every label, and how far noise puts them off
evaluated.labels[0].calibration()    for every bucket of predicted probability: how often it came true
evaluated.recalibrated(training)     the model with its intercept and slope set right, which costs nothing

With `people`, the ad server's own rows, buckets are quantiles of their scores, and only ones are counted.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered
from maskedlark.dp import intervals
from maskedlark.errors import BadArguments
from maskedlark.exact import cells as exact
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.cells import Cells, CellsArguments, CellTable
from maskedlark.parameters.document import Document
from maskedlark.training import network as networks
from maskedlark.training import plan as plans
from maskedlark.training import public_rows, recalibrating, score_buckets
from maskedlark.training.errors import Untrained
from maskedlark.training.evaluation_plan import EvaluationPlan
from maskedlark.training.metrics import LabelMeasures
from maskedlark.training.predictor import Predictor, check_encoder
from maskedlark.training.public_rows import Bytes
from maskedlark.training.score_buckets import LabelTable
from maskedlark.training.training import Training

EPSILON = 0.5
"""What an evaluation may cost, unless said."""
BITS = 16
"""Evaluations use wider weights than steps, closer to the model's own."""

Which = Literal["all", "held_out", "training"]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluated:
    """The result of an evaluation, label by label, and its cost."""

    labels: tuple[LabelMeasures, ...]
    """Binary for bce, Classes for softmax, Values for mse."""
    answered: Answered

    def __str__(self) -> str:
        named = [f"label {place}: {each}" for place, each in enumerate(self.labels)]
        return "\n".join(named) if len(named) > 1 else str(self.labels[0])

    __repr__ = __str__

    def recalibrated(self, model: Training | Predictor) -> Predictor:
        """A copy of the model that was evaluated, with intercept and slope from this histogram.

        It is post-processing of what was released: it costs nothing and asks nobody.
        """
        _check_trained(model)
        predictor = model.predictor() if isinstance(model, Training) else model
        return recalibrating.predictor(predictor, recalibrating.of_labels(self.labels))


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """One question about a network with these weights. Nothing is asked or charged until `ask`."""

    client: Client
    tag: str
    network: Network
    sent: Quantised
    rows: Bytes | None = None
    """Of the ad server: everybody whose report is in the datasets."""
    buckets: int | None = None
    part: Which = "all"
    held_out: float = 0.0
    datasets: Sequence[str] | None = None
    noise: float | None = None
    epsilon: float | None = None
    label: int | None = None
    """Its place, if it is the only one that is asked about."""

    def __post_init__(self) -> None:
        few = self.buckets is not None and self.buckets < 2
        plans.refuse((few, f"buckets={self.buckets}: one tells no score from another; give 2 or more"))
        if self.noise is None and self.epsilon is None:
            object.__setattr__(self, "epsilon", EPSILON)

    def __repr__(self) -> str:
        return f"<Evaluation of {self.tag}, part={self.part!r}: plan() prices it, ask() asks it>"

    @cached_property
    def document(self) -> Document:
        """Of the datasets."""
        return self._frozen[0]

    @cached_property
    def _frozen(self) -> tuple[Document, tuple[bytes, ...]]:
        return self.client.frozen_to_train(self.datasets)

    @cached_property
    def records(self) -> int:
        """The helpers', with fakes, in all parts."""
        return self.client.records(*self._frozen, self.tag)

    @property
    def real_records(self) -> float:
        """How many of them are expected to be real."""
        return self.records / (1 + self.document.fakes_of(self.tag))

    @property
    def _share(self) -> float:
        """The part's, of all records."""
        return {"all": 1.0, "held_out": self.held_out, "training": 1 - self.held_out}[self.part]

    @cached_property
    def tables(self) -> tuple[LabelTable, ...]:
        """One per label, cut without labels."""
        declared = self.document.trained(self.tag)
        spaces = [label.space() for label in declared.labels]
        outputs = None if self.rows is None else exact.outputs(self.network, self.sent, self.rows)
        changed = declared.feature_noise is not None or declared.randomised_response is not None
        made = []
        for place, (loss, columns, space) in enumerate(
            zip(self.network.losses, self.network.columns, spaces, strict=False)
        ):
            if self.label not in (None, place):
                continue
            count = score_buckets.BUCKETS if self.buckets is None else self.buckets
            if outputs is None or self.rows is None:
                edges = score_buckets.evenly(loss, space, count)
                made.append(LabelTable(loss, space, place, columns.start, edges, None, 1.0, None))
                continue
            behind = self.real_records * self._share / len(self.rows)
            # Over a part, or of features that browsers changed, nobody but helpers knows a bucket's records.
            ones = self.part == "all" and not changed and space.values == (0, 1)
            alone = self._real_error if ones and isinstance(loss, BinaryCrossEntropy) else None
            table = LabelTable(loss, space, place, columns.start, (), outputs[:, columns], behind, alone)
            if isinstance(loss, BinaryCrossEntropy) and self.buckets is None:
                table = table.finest(self.deviation(table, self._first_noise), self.document.k)
            elif not isinstance(loss, SoftmaxCrossEntropy):
                table = table.cut(count)
            made.append(table)
        return tuple(made)

    @property
    def _real_error(self) -> float:
        return public_rows.real_error(self.document.fakes_of(self.tag), self.real_records)

    @cached_property
    def _first_noise(self) -> float:
        """By which buckets are chosen, whatever was charged before: the same question has the same bytes."""
        return public_rows.first_noise(self.document, Cells.name, self.tag, self.noise, self.epsilon)

    def deviation(self, table: LabelTable, noise: float) -> float:
        """The deviation of all helpers' noise in one number."""
        partition = table.described.cells.partition()
        column = CellTable(table.place, table.space, partition, table.ones).column(1)
        kind = self.document.mechanism(Cells.name).kind
        return intervals.standard_error(kind, noise, column.sensitivity, len(self.document.helpers))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """As helpers get them."""
        return CellsArguments(
            tag=self.tag,
            model=described.describe(self.network),
            weights=weights.to_text(self.sent),
            tables=tuple(table.described for table in self.tables),
            part=self.part,
            held_out=self.held_out,
        ).model_dump(mode="json")

    @property
    def _asked(self) -> tuple[Cells, dict[str, Any], Sequence[str] | None, float | None, float | None]:
        return Cells(), self.arguments, self.datasets, self.noise, self.epsilon

    def plan(self) -> EvaluationPlan:
        """What it would cost, and the error bars that it would have. Spends nothing."""
        price = self.client.price(*self._asked, reuse=True)
        expected = [
            None if table.outputs is None else table.expected(self.deviation(table, price.noise))
            for table in self.tables
        ]
        deviations = tuple(self.deviation(table, price.noise) for table in self.tables)
        counts = tuple(table.described.cells.partition().count for table in self.tables)
        rows = None if self.rows is None else len(self.rows)
        return EvaluationPlan(
            price, self.is_answered(), self.part, counts, deviations, tuple(expected), rows, self.records,
            self.real_records,
        )  # fmt: skip

    def is_answered(self) -> bool:
        """Whether the very same was answered before, so that `ask` charges nothing."""
        return self.client.is_answered(*self._asked)

    def ask(self) -> Evaluated:
        """The release: charged once, however often the same is asked."""
        answered = self.client.ask(*self._asked, reuse=True)
        labels = []
        for table, own in zip(self.tables, answered.tables, strict=True):
            deviation = self.deviation(table, answered.noise)
            counts = table.described.dense(own.rows, own.columns[0]).astype(np.float64)
            # Of a table by cell, a row is a run of buckets, and is named by its first.
            first = np.array([row[0] for row in own.rows], np.intp) if own.schema.by else None
            labels.append(table.measured(counts, deviation, first))
        return Evaluated(tuple(labels), answered)


def evaluation_query(
    client: Client,
    model: Training | Predictor | nn.Module,
    table: Any = None,  # noqa: ANN401 - any table, or bytes
    *,
    loss: str | Sequence[str] | None = None,
    tag: str | None = None,
    datasets: Sequence[str] | None = None,
    part: Which = "all",
    held_out: float | None = None,
    buckets: int | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
    sample: NDArray[np.uint8] | None = None,
    bits: int = BITS,
) -> Evaluation:
    """The question of an evaluation: `plan` prices it, `ask` asks it.

    `table`: the ad server's own rows; with it errors are smaller, and known beforehand. Over all records
    buckets of fewer than k are counted together with their neighbours, and records whose likeliest class is
    that of fewer than k are left out. A run or a saved model has its own loss and tag, a run also its
    held-out share; a bare module needs them.
    """
    asked, share, scaling = _asked(model, loss, tag)
    share = 0.0 if part == "all" else share if held_out is None else held_out
    lacking = part != "all" and not 0 < share < 1
    plans.refuse((lacking, f"part={part!r} goes with held_out, the share that the run kept out of batches"))
    document, _ = client.frozen_to_train(datasets)
    check_encoder(document.trained(asked.tag), asked.encoder)
    features = described.byte_features(document, asked.tag)
    network = networks.network(asked.model, networks.losses(asked.loss, asked.model), features)
    networks.check_sample(sample, features)
    scaling = networks.scaling_rows(network, scaling if sample is None else sample, asked.encoder)
    sent = networks.quantised(network, asked.model, scaling, bits)
    rows = None if table is None else public_rows.encoded(table, asked.encoder, features)
    return Evaluation(client, asked.tag, network, sent, rows, buckets, part, share, datasets, noise, epsilon)


def _check_trained(model: object) -> None:
    """Refuse a path, and a model that was fitted: `fitting` is above this package."""
    if isinstance(model, Training | Predictor):
        return
    if isinstance(model, str | Path):
        raise BadArguments(
            f"{str(model)!r} is a path: give what `maskedlark.training.load(path, module)` returns, of an "
            "ONNX file `maskedlark.training.read_onnx`, or of a fit `maskedlark.fitting.load(path)`, with "
            "`maskedlark.fitting.evaluate`"
        )
    raise BadArguments(
        f"a {type(model).__name__} is no run, no saved model and no torch module: of a fit, "
        "`maskedlark.fitting.evaluation`, `evaluate` and `recalibrated` take it"
    )


def _asked(
    model: Training | Predictor | nn.Module, loss: str | Sequence[str] | None, tag: str | None
) -> tuple[Predictor, float, NDArray[np.uint8] | None]:
    """The model, the share that its run held out, and the public rows that scale its activations."""
    if isinstance(model, nn.Module):
        if loss is None or tag is None:
            raise BadArguments("a bare module does not say what it was trained for: give loss and tag")
        networks.check_module(model)
        return Predictor(model, loss, tag), 0.0, None
    _check_trained(model)
    asked = Predictor(model.model, loss or model.loss, tag or model.tag, model.encoder)
    if isinstance(model, Training):
        if not model.taken:
            warnings.warn(
                "no step of this run was taken: what is evaluated is the model as it was given",
                Untrained,
                stacklevel=4,
            )
        return asked, model.planned.sampling.held_out, model.sample
    return asked, 0.0, None
