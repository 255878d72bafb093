"""The masked, clipped gradient of a batch (section 4.2, algorithm 3). Run by helpers, once per step.

The row of V is the clipped gradient of the loss at every candidate label; the secret is the one-hot truth.
"""

from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.field import FieldArray
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.exact import device as devices
from maskedlark.exact import gradient as exact
from maskedlark.exact import resident
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.forward import Seed
from maskedlark.exact.layout import StepLayout, step_layout
from maskedlark.exact.network import Network
from maskedlark.functions import model, weights
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
from maskedlark.functions.model import ModelFunction, ModelQuery
from maskedlark.parameters.document import Document

_CPU = "cpu"
"""Where columns are mapped from files, and need not be kept."""


@dataclass(frozen=True)
class GradientQuery(ModelQuery):
    """The gradient of one model at these weights, over the given batch."""

    clipping: Clip
    dropout_seed: bytes | None = None

    @cached_property
    def step(self) -> StepLayout:
        """Every exponent and bound, from the weights."""
        return step_layout(self.network, self.weights, self.clipping)

    @cached_property
    def schemas(self) -> tuple[TableSchema, ...]:
        """One row with one vector: a number per parameter."""
        top, size = self.step.row_top, self.network.size
        # Another label replaces one gradient by another, each at most as long as the bound. One clipped in
        # L1 is not longer in L2; one clipped in L2 is at most √d times as long in L1.
        l1 = 2 * top * (1 if self.clipping.norm is Norm.L1 else isqrt(size - 1) + 1)
        sensitivity = Sensitivity(l1, float(2 * top), size)
        return (TableSchema((), (Column("gradient", sensitivity, top, size, float(top)),)),)

    def share_of(self, records: TrainingRecords, device: str = "cpu") -> list[FieldArray]:
        """The sum over all records; `release` checks k."""
        seed = None if self.dropout_seed is None else Seed(self.dropout_seed, records.ids)
        batch = exact.Records.of(records, seed)
        batch.check(self.network)
        return [self._engine(device).share(batch)]

    def over_rows(
        self,
        records: TrainingRecords,
        rows: NDArray[np.intp] | None,
        counted: NDArray[np.bool_],
        device: str = "cpu",
    ) -> Partial:
        """Where the device is another, the shard's columns stay there from step to step."""
        if device == _CPU:
            return super().over_rows(records, rows, counted, device)
        columns = resident.kept(records, self.network, device)
        places = np.arange(len(records)) if rows is None else rows
        batch = columns.rows(places, counted, self.dropout_seed)
        total = self._engine(device).share(batch)
        return [Table([()], np.array([len(places)], np.int64), (total[None, :],))]

    def _engine(self, device: str) -> exact.GradientEngine:
        if device not in self._engines:
            self._engines[device] = exact.GradientEngine(self.step, devices.ready(device))
        return self._engines[device]

    @cached_property
    def _engines(self) -> dict[str, exact.GradientEngine]:
        """By device: the weights on it."""
        return {}


@dataclass(frozen=True)
class GradientSteps(Steps):
    """A network under a document, without weights."""

    tag: str
    network: Network
    clipping: Clip
    allows_amplification = True

    def at(self, body: bytes, shared: bytes) -> Query:
        """The gradient at these weights."""
        sent = weights.decode(self.network, body)
        query = GradientQuery(
            self.tag, self.network, sent, self.clipping, shared if self.network.has_dropout else None
        )
        query.schemas  # noqa: B018 - refuses weights that leave the field before the step is claimed
        return query


class Gradient(ModelFunction, SteppedFunction):
    """Gradients, step by step."""

    name = model.GRADIENT

    def begin(self, document: Document, tag: str, arguments: Arguments) -> Steps:
        """The arguments are a network's description."""
        described = model.decode(arguments)
        described.check(document, tag)
        clip = model.clip(document, tag, described.fraction, described.depth)
        return GradientSteps(tag, described.network, clip)
