"""How good a model is, on labels that nobody holds: one private query, and measures with error bars.

evaluated = client.evaluate(training, part="held_out")
print(evaluated)                     AUC, log-loss, accuracy of every label, and how far noise puts them off
evaluated.labels[0].calibration()    for every bucket of predicted probability: how often it came true
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered, Combined
from maskedlark.core.labels import LabelSpace
from maskedlark.dp import intervals
from maskedlark.errors import BadArguments
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.cells import (
    Cells,
    CellsArguments,
    DescribedBuckets,
    DescribedLargest,
    DescribedTable,
)
from maskedlark.training import network as networks
from maskedlark.training import plan as plans
from maskedlark.training.metrics import Binary, Classes, LabelMeasures, Values
from maskedlark.training.predictor import Predictor, check_encoder
from maskedlark.training.training import Training

BUCKETS = 20
BITS = 16
"""Evaluations use wider weights than steps, closer to the model's own."""

Which = Literal["all", "held_out", "training"]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The result of an evaluation, label by label, and its cost."""

    labels: tuple[LabelMeasures, ...]
    """Binary for bce, Classes for softmax, Values for mse."""
    answered: Answered

    def __str__(self) -> str:
        named = [f"label {place}: {each}" for place, each in enumerate(self.labels)]
        return "\n".join(named) if len(named) > 1 else str(self.labels[0])


def evaluate(
    client: Client,
    model: Training | Predictor | nn.Module,
    *,
    loss: str | Sequence[str] | None = None,
    tag: str | None = None,
    datasets: Sequence[str] | None = None,
    part: Which = "all",
    held_out: float | None = None,
    buckets: int = BUCKETS,
    noise: float | None = None,
    epsilon: float | None = None,
    sample: NDArray[np.uint8] | None = None,
    bits: int = BITS,
) -> Evaluated:
    """Ask helpers for histograms of (score bucket, label), and measure. Charged as one release per label.

    Over all records buckets of fewer than k are counted together with their neighbours, and records whose
    likeliest class is that of fewer than k are left out. A run or a saved model has its own loss and tag, a
    run also its held-out share; a bare module needs them.
    """
    asked, share, rows = _asked(model, loss, tag)
    share = 0.0 if part == "all" else share if held_out is None else held_out
    lacking = part != "all" and not 0 < share < 1
    plans.refuse((lacking, f"part={part!r} goes with held_out, the share that the run kept out of batches"))
    document, _ = client.frozen_to_train(datasets)
    check_encoder(document.trained(asked.tag), asked.encoder)
    features = described.byte_features(document, asked.tag)
    network = networks.network(asked.model, networks.losses(asked.loss, asked.model), features)
    sent = networks.quantised(network, asked.model, rows if sample is None else sample, bits)
    options = {"datasets": datasets, "noise": noise, "epsilon": epsilon}
    return measure(client, asked.tag, network, sent, buckets, part, share, **options)


def measure(
    client: Client,
    tag: str,
    network: Network,
    sent: Quantised,
    buckets: int = BUCKETS,
    part: Which = "all",
    held_out: float = 0.0,
    **options: Any,  # noqa: ANN401 - datasets, noise and epsilon of `client.ask`
) -> Evaluated:
    """Ask helpers for histograms of this network with these weights, and measure."""
    plans.refuse((buckets < 1, "a score is in one of 1 or more buckets"))
    document, _ = client.frozen_to_train(options.get("datasets"))
    spaces = [label.space() for label in document.trained(tag).labels]
    labels = enumerate(zip(network.losses, network.columns, spaces, strict=False))
    arguments = CellsArguments(
        tag=tag,
        model=described.describe(network),
        weights=weights.to_text(sent),
        tables=tuple(
            DescribedTable(label=label, cells=_cells(loss, columns.start, space, buckets))
            for label, (loss, columns, space) in labels
        ),
        part=part,
        held_out=held_out,
    )
    answered = client.ask(Cells(), arguments.model_dump(mode="json"), **options)
    each_label = zip(network.losses, spaces, arguments.tables, answered.tables, strict=True)
    return Evaluated(tuple(_measured(answered, *each) for each in each_label), answered)


def _asked(
    model: Training | Predictor | nn.Module, loss: str | Sequence[str] | None, tag: str | None
) -> tuple[Predictor, float, NDArray[np.uint8] | None]:
    """The model, the share that its run held out, and the public rows that scale its activations."""
    if isinstance(model, nn.Module):
        if loss is None or tag is None:
            raise BadArguments("a bare module does not say what it was trained for: give loss and tag")
        return Predictor(model, loss, tag), 0.0, None
    asked = Predictor(model.model, loss or model.loss, tag or model.tag, model.encoder)
    if isinstance(model, Training):
        return asked, model.planned.sampling.held_out, model.sample
    return asked, 0.0, None


def _cells(loss: Loss, output: int, space: LabelSpace, buckets: int) -> DescribedLargest | DescribedBuckets:
    """The likeliest class for softmax; probabilities from 0 to 1; values over the label's range."""
    if isinstance(loss, SoftmaxCrossEntropy):
        return DescribedLargest(first=output, count=loss.classes)
    if isinstance(loss, BinaryCrossEntropy):
        part = np.arange(1, buckets) / buckets
        edges = np.log(part) - np.log1p(-part)
    else:
        edges = np.linspace(space.values[0], space.values[-1], buckets + 1)[1:-1]
    return DescribedBuckets(output=output, edges=tuple(edges.tolist()))


def _measured(
    answered: Answered, loss: Loss, space: LabelSpace, asked: DescribedTable, table: Combined
) -> LabelMeasures:
    sensitivity = table.plan.columns[0].sensitivity
    deviation = intervals.standard_error(answered.kind, answered.noise, sensitivity, answered.helpers)
    counts = asked.dense(table.rows, table.columns[0]).astype(np.float64)
    if isinstance(loss, SoftmaxCrossEntropy):
        # One column per class, even for classes that no label can have.
        square = np.zeros((loss.classes, loss.classes))
        square[:, list(space.values)] = counts
        return Classes(square, deviation)
    low, high = (0, 1) if isinstance(loss, BinaryCrossEntropy) else (space.values[0], space.values[-1])
    edges = np.linspace(low, high, len(counts) + 1)
    if table.plan.by:
        # A row is a run of buckets, and is named by its first.
        first = [int(row[0]) for row in table.rows]
        counts, edges = counts[first], edges[[*first, len(counts)]]
    if isinstance(loss, BinaryCrossEntropy):
        return Binary(counts, deviation, edges)
    return Values(counts, deviation, edges, np.array(space.values, np.float64))
