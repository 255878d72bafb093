"""Moments of a model's labels: all that a linear model needs of them, in one release. Run by helpers.

The row of V is the clipped φ(x) · t(y) at every candidate label y; the secret is the one-hot truth. φ is the
input of the network's last layer, which the ad server fits to the answer (`fitting`); t follows from the
label's loss: its number, or for softmax its one-hot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isqrt, sqrt
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from maskedlark.core import field
from maskedlark.core.declared import MAX_NAMES
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import Loss, SoftmaxCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.functions import model, weights
from maskedlark.functions.function import Arguments, Column, Function, Query, TableSchema, parse
from maskedlark.functions.model import DescribedModel, ModelFunction, ModelQuery
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Name
from maskedlark.wire.message import Settings

MAX_NUMBERS = 1 << 20
"""The most numbers of an answer, eight bytes each."""


class MomentsArguments(Settings):
    """A network up to its last layer, the bound of its rows, and the labels asked for."""

    tag: Name
    model: DescribedModel
    """With the last layer and the losses that will be fitted. Its fraction is that of the clip factors."""
    weights: str
    """Encoded as in a step, then base64; those of the last layer are 0."""
    clip: Annotated[float, Field(gt=0, le=1e9)]
    """R: the bound on the norm of φ, L2 for Gaussian noise, L1 for Laplace."""
    labels: Annotated[tuple[int, ...], Field(min_length=1, max_length=MAX_NAMES)] | None = None
    """Which of the model's labels, by place, ascending; each is a column. None: all."""

    @model_validator(mode="after")
    def _ascending(self) -> "MomentsArguments":
        places = range(len(self.model.losses))
        if self.labels is not None and list(self.labels) != sorted(set(self.labels) & set(places)):
            raise ValueError(f"labels are different places of the model's {len(places)}, ascending")
        return self


@dataclass(frozen=True)
class MomentsQuery(ModelQuery):
    """Moments of these labels of one model."""

    representation: Representation
    spaces: tuple[LabelSpace, ...]
    labels: tuple[int, ...]

    @cached_property
    def schemas(self) -> tuple[TableSchema, ...]:
        """One row, with a vector per label: output by output, φ in its order, the constant last."""
        return (TableSchema((), tuple(map(self._column, self.labels))),)

    def share_of(self, records: TrainingRecords, device: str = "cpu") -> list[FieldArray]:
        """A vector per label."""
        return [self._share(records, label, device).ravel() for label in self.labels]

    def _column(self, label: int) -> Column:
        loss, values, phi = self.network.losses[label], self.spaces[label].values, self.representation
        # A fake counts as 0, so another label can move the number by as much as from 0 to either end.
        span, largest = max(values[-1], 0) - min(values[0], 0), max(-values[0], values[-1])
        touched, l2 = phi.width, phi.top * span
        if isinstance(loss, SoftmaxCrossEntropy):
            # Another label takes the row from one class and gives it to another: orthogonal, so √2.
            touched, l2, span, largest = 2 * phi.width, phi.top * sqrt(2), 2, 1
        # A row that is clipped in L2 is at most √width times as long in L1.
        longer = 1 if phi.norm is Norm.L1 else isqrt(phi.width - 1) + 1
        top = ceil(phi.top)
        sensitivity = Sensitivity(top * span * longer, l2, touched)
        return Column(f"label {label}", sensitivity, top * largest, loss.outputs * phi.width)

    def _share(self, records: TrainingRecords, label: int, device: str) -> FieldArray:
        loss, masks = self.network.losses[label], records.masks(label)
        shown = np.broadcast_to(records.candidates[label], masks.shape)
        one_hot = isinstance(loss, SoftmaxCrossEntropy)

        def weighted(block: slice) -> FieldArray:
            own, candidates = np.ascontiguousarray(masks[block]), shown[block]
            if one_hot:
                return _by_class(own, candidates, loss.outputs)
            return field.total(field.multiply(own, field.from_signed(candidates)), axis=1)[:, None]

        return self.representation.share(records.features, weighted, loss.outputs, device=device)


def _by_class(masks: FieldArray, candidates: np.ndarray, classes: int) -> FieldArray:
    """Masks in the column of their candidate's class: (n, classes)."""
    if candidates.shape[1] == classes and (candidates == np.arange(classes)).all():
        return masks
    group = np.arange(len(masks))[:, None] * classes + candidates
    return field.total_by(masks.ravel(), group.ravel(), len(masks) * classes).reshape(-1, classes)


class Moments(ModelFunction, Function):
    """Moments of labels."""

    name = "moments"

    def ask(self, document: Document, arguments: Arguments) -> Query:
        """Refuses a network that does not match the model, and answers that are too large."""
        asked = parse(MomentsArguments, arguments)
        asked.model.check(document, asked.tag)
        labels = asked.labels or tuple(range(len(asked.model.losses)))
        network, sent = asked.model.network, weights.from_text(asked.model.network, asked.weights)
        last = network.layers[-1].linear
        _check_size(last.inputs + 1, [network.losses[label] for label in labels])
        if sent.values[network.size - last.outputs * (last.inputs + (last.bias is not None)) :].any():
            raise BadArguments("the last layer is what will be fitted: send its weights as zeros")
        norm = model.NORMS[document.mechanism(self.name).kind]
        phi = Representation(network, sent, asked.clip, norm, asked.model.fraction)
        # Of one row, to refuse weights out of range before anything is charged.
        phi.rows(np.zeros((1, network.features), np.uint8))
        spaces = tuple(label.space() for label in document.trained(asked.tag).labels)
        return MomentsQuery(asked.tag, network, sent, phi, spaces, labels)


def _check_size(width: int, losses: Sequence[Loss]) -> None:
    outputs = sum(loss.outputs for loss in losses)
    if width * outputs > MAX_NUMBERS:
        raise BadArguments(
            f"moments of {width} inputs and {outputs} outputs are over {MAX_NUMBERS} numbers: at most "
            f"{MAX_NUMBERS // outputs} inputs fit, or ask for fewer labels"
        )
