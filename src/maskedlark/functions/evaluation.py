"""Evaluation: a masked histogram of (score bucket, label), from which all measures of a model follow.

The row of V is the one-hot of (score bucket, candidate label); the secret is the one-hot truth. It covers
all records, those held out of every batch, or the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskedlark.core.declared import MAX_NAMES
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.exact import evaluation as exact
from maskedlark.exact import gradient
from maskedlark.exact.evaluation import Scale
from maskedlark.functions import weights
from maskedlark.functions.function import Arguments, Column, Function, Part, Query, TableSchema, parse
from maskedlark.functions.model import DescribedModel, ModelFunction, ModelQuery
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Name
from maskedlark.wire.message import Settings

MAX_CELLS = 1 << 16
"""The most cells of one label's histogram."""


class DescribedScale(Settings):
    """How one label's scores are divided into buckets."""

    buckets: Annotated[int, Field(ge=1, le=1 << 12)]
    low: Annotated[int, Field(ge=-(1 << 31), le=1 << 31)] = 0
    high: Annotated[int, Field(ge=-(1 << 31), le=1 << 31)] = 1


class EvaluationArguments(Settings):
    """A model, its weights, its score buckets, and which records to evaluate."""

    tag: Name
    model: DescribedModel
    weights: str
    """Encoded as in a step, then base64."""
    scales: Annotated[tuple[DescribedScale, ...], Field(min_length=1, max_length=MAX_NAMES)]
    part: Literal["all", "held_out", "training"] = "all"
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _fitting(self) -> "EvaluationArguments":
        if (self.part == "all") != (self.held_out == 0):
            raise ValueError(
                "a part goes with held_out, the share that is kept out of batches; 'all' without"
            )
        return self


@dataclass(frozen=True)
class EvaluationQuery(ModelQuery):
    """Histograms of one model, one per label."""

    scales: tuple[Scale, ...]
    spaces: tuple[LabelSpace, ...]
    part: Part | None

    @cached_property
    def schemas(self) -> tuple[TableSchema, ...]:
        """One row, with a vector per label: bucket by bucket, labels in their space's order."""
        columns = []
        for number, (scale, space) in enumerate(zip(self.scales, self.spaces, strict=True)):
            # Another label moves 1 from one cell to another.
            sensitivity = Sensitivity(2, sqrt(2), touched=2)
            columns.append(Column(f"label {number}", sensitivity, 1, scale.buckets * len(space)))
        return (TableSchema((), tuple(columns)),)

    def share_of(self, records: TrainingRecords) -> list[FieldArray]:
        """A histogram per label."""
        masked = gradient.Records.of(records)
        buckets = exact.buckets(self.network, self.weights, records.features, self.scales)
        return [
            exact.histogram(buckets[label], masked, label, scale, space)
            for label, (scale, space) in enumerate(zip(self.scales, self.spaces, strict=True))
        ]


class Evaluation(ModelFunction, Function):
    """Masked histograms of scores and labels."""

    name = "evaluation"

    def ask(self, document: Document, arguments: Arguments) -> Query:
        """Refuses a network that does not match the model, and weights that do not match the network."""
        asked = parse(EvaluationArguments, arguments)
        asked.model.check(document, asked.tag)
        spaces = tuple(label.space() for label in document.trained(asked.tag).labels)
        scales = tuple(Scale(**scale.model_dump()) for scale in asked.scales)
        _check_scales(scales, spaces)
        part = None if asked.part == "all" else Part(asked.part, asked.held_out)
        network, sent = asked.model.network, weights.from_text(asked.model.network, asked.weights)
        # Scores one row, to refuse weights and scales out of range before anything is charged.
        exact.buckets(network, sent, np.zeros((1, network.features), np.uint8), scales)
        return EvaluationQuery(asked.tag, network, sent, scales, spaces, part)


def _check_scales(scales: Sequence[Scale], spaces: Sequence[LabelSpace]) -> None:
    if len(scales) != len(spaces):
        raise BadArguments(f"the model has {len(spaces)} labels: give a scale for each, not {len(scales)}")
    for scale, space in zip(scales, spaces, strict=True):
        if scale.buckets * len(space) > MAX_CELLS:
            raise BadArguments(f"a histogram has at most {MAX_CELLS} cells: use fewer buckets")
