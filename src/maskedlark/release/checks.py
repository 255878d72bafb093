"""What queries and sessions must satisfy besides the budget. Looks at no record. Run by a helper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.errors import FieldOverflow, NoiseTooSmall
from maskedlark.functions.function import Column, Query
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import Mechanism
from maskedlark.release.errors import AnswerTooLarge, MixedDatasets, TooFewRecords, TooManyRecords
from maskedlark.release.messages import MAX_ANSWER, MAX_REQUEST
from maskedlark.release.shards import Shard
from maskedlark.wire.columns import MAX_KEY_TEXT

Seeds = Callable[[Document, bytes], bytes]
"""The seed that the helpers of a dataset share, by its document and digest."""


class Dataset(Protocol):
    """A frozen dataset at this helper."""

    digest: bytes
    document: Document
    purpose: Purpose
    expires: int

    def size(self, tag: str | None) -> int:
        """The number of records, of this model."""

    def shards(self, tag: str | None) -> Sequence[Shard]:
        """Its records, of this model, in shards."""

    def stored_bytes(self, tag: str | None) -> int:
        """The bytes of these records' columns."""


_REMEDIES = {
    "sums": "ask by groups or with a filter, or over fewer datasets",
    "cells": "ask over a part of them (the run's held_out), or over fewer datasets",
    "gradient": "take smaller batches, or fewer datasets",
}
"""Against too many records, by function."""


@dataclass(frozen=True, repr=False)
class Scope:
    """The datasets of one query or session of a function: all under one document, for one purpose."""

    datasets: tuple[Dataset, ...]
    function: str
    find_seed: Seeds

    def __post_init__(self) -> None:
        if len({each.digest for each in self.datasets}) < len(self.datasets):
            raise MixedDatasets("a dataset is named twice: each counts once")
        if len({(each.document.digest, each.purpose) for each in self.datasets}) > 1:
            raise MixedDatasets("datasets of one request are of one purpose and document: ask for each apart")

    @property
    def document(self) -> Document:
        """The document of all datasets."""
        return self.datasets[0].document

    @property
    def purpose(self) -> Purpose:
        """The purpose of all datasets."""
        return self.datasets[0].purpose

    @property
    def mechanism(self) -> Mechanism:
        """How the function's noise is drawn. Raises if the document does not declare it."""
        return self.document.mechanism(self.function)

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The datasets' digests."""
        return tuple(each.digest for each in self.datasets)

    @property
    def expires(self) -> int:
        """When the first of the datasets expires."""
        return min(each.expires for each in self.datasets)

    @cached_property
    def seeds(self) -> tuple[bytes, ...]:
        """The seeds that the datasets' helpers share. Raises if one is missing: nothing is answered then."""
        return tuple(self.find_seed(each.document, each.digest) for each in self.datasets)

    def sizes(self, tag: str | None) -> list[int]:
        """Records of a model, by dataset."""
        return [each.size(tag) for each in self.datasets]

    def size(self, tag: str | None) -> int:
        """Records of a model, in all datasets."""
        return sum(self.sizes(tag))

    def shards(self, tag: str | None) -> list[Sequence[Shard]]:
        """Records of a model in shards, by dataset."""
        return [each.shards(tag) for each in self.datasets]

    def check_noise(self, noise: float) -> None:
        """Refuse less noise than the document declares."""
        if noise < self.mechanism.noise_floor:
            raise NoiseTooSmall(f"noise {noise:g} is below the declared {self.mechanism.noise_floor:g}")


def check_size(document: Document, function: str, records: int, counted: int) -> None:
    """Refuse fewer records than k, or more than the document allows per release.

    `counted`: of these, how many one sum is over, as far as is known beforehand. Run by helpers before they
    charge, and by the ad server before it asks.
    """
    if records < document.k:
        raise TooFewRecords(f"fewer than k = {document.k} records: nothing is released over so few")
    if counted > document.max_records:
        raise TooManyRecords(
            f"it is over more than {document.max_records} records, the most of a release (max_records): "
            + _REMEDIES.get(function, "ask over fewer datasets")
        )


def check_range(
    document: Document, function: str, column: Column, noise: float | None, records: int, growth: int = 1
) -> None:
    """Refuse a column whose sum over these records, with all helpers' noise, could leave the field.

    Run by helpers before they compute, and by the ad server before it asks.
    """
    tail = 0
    if noise is not None:
        kind, helpers = document.mechanism(function).kind, len(document.helpers)
        tail = mechanisms.tail(kind, noise, column.sensitivity, helpers)
    if records * column.largest * growth + tail > field.HALF:
        raise FieldOverflow(
            f"{column.name} over so many records, with this noise, could leave the field: ask with less "
            "noise, send coarser weights, lower the fraction, or ask over fewer records"
        )


def max_bytes(query: Query, rows: int) -> int:
    """The most bytes of an answer with this many rows per grouped table, without its receipt."""
    size = 0
    for schema in query.schemas:
        own = min(rows, schema.most_rows or rows) if schema.by else 1
        numbers = sum(8 * column.width for column in schema.columns)
        size += own * (numbers + len(schema.by) * (MAX_KEY_TEXT + 2) + 9)
    return size


def check_answer(query: Query, rows: int) -> None:
    """Refuse an answer too large for any ad server to read: it would waste budget."""
    size = max_bytes(query, rows)
    if size > MAX_ANSWER - MAX_REQUEST:
        raise AnswerTooLarge(f"the answer could take {size >> 20} MiB: ask for fewer values or groupings")
