"""A stepped function of an operator's own: labels of 0 or 1 add 0 or the whole sensitivity, by coordinate."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.functions.function import (
    Arguments,
    Column,
    Partial,
    Query,
    SteppedFunction,
    Steps,
    Table,
    TableSchema,
)
from maskedlark.parameters.document import Document

WHOLE = 1 << 20
"""The sensitivity: what a label of 1 adds, and a label of 0 or an absent record does not."""


@dataclass(frozen=True)
class LabelQuery(Query):
    """Labels of 1, by the number that a record's first two bytes are."""

    width: int
    largest_l2: float

    @property
    def schemas(self) -> tuple[TableSchema, ...]:
        sensitivity = Sensitivity(WHOLE, float(WHOLE))
        return (TableSchema((), (Column("labels", sensitivity, WHOLE, self.width, self.largest_l2),)),)

    def over(self, records: Records, device: str = "cpu") -> Partial:
        assert isinstance(records, TrainingRecords)
        own = (records.masks(0) * (records.candidates[0] == 1)).sum(axis=1)
        coordinates = records.features[:, :2].copy().view("<u2")[:, 0].astype(np.intp) % self.width
        total = field.total_by(field.multiply(own, np.full(1, WHOLE)), coordinates, self.width)
        return [Table([()], np.array([len(records)]), (total.reshape(1, self.width),))]


@dataclass(frozen=True)
class LabelSteps(Steps):
    """The same query at every step; its body is the largest L2 norm, or empty if that is unknown."""

    width: int
    declares: bool

    @property
    def allows_amplification(self) -> bool:  # type: ignore[override]
        return self.declares

    def at(self, body: bytes, shared: bytes) -> Query:
        return LabelQuery(self.width, float(body) if body else math.inf)


class LabelSum(SteppedFunction):
    """The sum of labels, by coordinate."""

    name = "label_sum"
    purpose = Purpose.TRAIN

    def begin(self, document: Document, tag: str, arguments: Arguments) -> Steps:
        given: dict[str, Any] = {"width": 1, "declares": False, **arguments}
        return LabelSteps(given["width"], given["declares"])
