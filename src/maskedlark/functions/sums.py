"""Sums and counts of conversion values by declared keys, with filters (section 3.3). Run by helpers.

The row of V is 1 in the record's group; the secret is the value, or 1 for a real record and 0 for a fake.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from maskedlark.core.declared import COUNT, MAX_NAMES
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, Entry, Records
from maskedlark.core.suggestions import did_you_mean
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments
from maskedlark.functions import grouping
from maskedlark.functions.function import (
    Arguments,
    Column,
    Function,
    Partial,
    Query,
    Table,
    TableSchema,
    parse,
)
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import KeyNumber, KeyText, Name
from maskedlark.wire.message import Settings

MAX_GROUPINGS = 16
MAX_AMONG = 1 << 12
_Key = KeyText | KeyNumber


class Where(Settings):
    """A filter: records whose key is one of these entries, or within these inclusive bounds."""

    key: Name
    among: Annotated[tuple[_Key, ...], Field(min_length=1, max_length=MAX_AMONG)] | None = None
    min: KeyNumber | None = None
    max: KeyNumber | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "Where":
        ranged = self.min is not None or self.max is not None
        if (self.among is not None) == ranged:
            raise ValueError(f"a filter on {self.key} has either 'among', or 'min' and 'max'")
        return self

    @cached_property
    def _members(self) -> frozenset[Entry]:
        return frozenset(self.among or ())

    def allows(self, entry: Entry) -> bool:
        """Whether a record with this entry passes. Only integers can be in a range."""
        if self.among is not None:
            return entry in self._members
        if not isinstance(entry, int):
            return False
        return (self.min is None or self.min <= entry) and (self.max is None or entry <= self.max)


class SumsArguments(Settings):
    """What is summed, by what, and over which records."""

    values: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_NAMES + 1)]
    """Declared values, and `count` for the number of real records."""
    by: Annotated[
        tuple[Annotated[tuple[Name, ...], Field(max_length=MAX_NAMES)], ...],
        Field(min_length=1, max_length=MAX_GROUPINGS),
    ] = ((),)
    """One table per grouping; the empty grouping is the total."""
    where: Annotated[tuple[Where, ...], Field(max_length=MAX_NAMES)] = ()

    @model_validator(mode="after")
    def _once(self) -> "SumsArguments":
        for what, names in [("value", self.values), *(("key", keys) for keys in self.by)]:
            if len(set(names)) < len(names):
                raise ValueError(f"a {what} is named twice: each counts once")
        return self


@dataclass(frozen=True)
class SumsQuery(Query):
    """Sums of these columns of shares."""

    arguments: SumsArguments
    places: tuple[int, ...]
    """By value: its column of shares."""
    values: tuple[Column, ...]

    @cached_property
    def schemas(self) -> tuple[TableSchema, ...]:
        """A table per grouping, a column per value."""
        return tuple(TableSchema(keys, self.values) for keys in self.arguments.by)

    @property
    def may_lack_rows(self) -> bool:  # type: ignore[override]
        """Unless a row is over all records, whatever their keys."""
        return all(schema.by or self.arguments.where for schema in self.schemas)

    def over(self, records: Records, device: str = "cpu") -> Partial:  # noqa: ARG002
        """Groups with their sizes and sums."""
        assert isinstance(records, AggregateRecords), "sums are over reports to aggregate"
        filters = [(where.key, where.allows) for where in self.arguments.where]
        sums = grouping.Sums(records, self.places, filters)
        return [sums.by(schema.by) for schema in self.schemas]

    def tables(self, partials: Sequence[Partial], k: int) -> list[Table]:
        """Groups of at least k records, in the order of their keys."""
        return [table.at_least(k) for table in super().tables(partials, k)]


class Sums(Function):
    """Sums and counts by group."""

    name = "sums"
    purpose = Purpose.AGGREGATE

    def ask(self, document: Document, arguments: Arguments) -> Query:
        """Refuses keys and values that are not declared."""
        asked = parse(SumsArguments, arguments)
        _check_names("value", asked.values, (COUNT, *document.measure.names))
        keys = [*(name for by in asked.by for name in by), *(where.key for where in asked.where)]
        _check_names("key", keys, document.keys)
        names = (COUNT, *document.measure.names)
        places = tuple(names.index(name) for name in asked.values)
        return SumsQuery(asked, places, tuple(_column(document, name) for name in asked.values))

    def canonical(self, arguments: Arguments) -> Arguments:
        """Whatever the order of values, filters and their entries, the same is asked."""
        asked = parse(SumsArguments, arguments).model_dump(mode="json")
        for each in asked["where"]:
            each["among"] = each["among"] and sorted(each["among"], key=json.dumps)
        return asked | {"values": sorted(asked["values"]), "where": sorted(asked["where"], key=json.dumps)}


def _column(document: Document, name: str) -> Column:
    if name == COUNT:
        return Column(COUNT, Sensitivity(1, 1.0), 1)
    value = next(value for value in document.values if value.name == name)
    return Column(name, Sensitivity(value.width(), float(value.width())), value.declared().largest())


def _check_names(what: str, names: Sequence[str], declared: Sequence[str]) -> None:
    for name in names:
        if name not in declared:
            raise BadArguments(f"{name!r} is no declared {what}; {did_you_mean(name, declared)}")
