"""A user's own table, a row per person: keys to count by, values to add up, a label, features.

Read before any service is started. In production nobody has such a table: the ad server knows keys and
features, only browsers know values and labels.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.declared import COUNT
from maskedlark.features import table as tables
from maskedlark.features.column import Column, Value, can_read
from maskedlark.features.encoder import LEAST, Encoder
from maskedlark.features.errors import ColumnDoesNotFit, UnknownColumn
from maskedlark.features.exclusions import MIN_ROWS, why_not
from maskedlark.features.kinds import Kind, boolean
from maskedlark.features.scaled import number
from maskedlark.features.table import Table
from maskedlark.parameters.decoys import key_cells
from maskedlark.parameters.settings import MAX_NUMBER
from maskedlark.simulate.errors import BadSimulation
from maskedlark.training.metrics import Binary
from maskedlark.wire.columns import Key

Bounds = tuple[int, int]
TELLING = 0.95
"""Features whose AUC is above this are reported to the user."""
_NAME = re.compile(r"[A-Za-z0-9_.:/ -]{1,64}")
_NOT_BINARY = "neither 0 nor 1 (nor true/false, yes/no): a label is one of the two; a number is a value"
_NOT_A_NUMBER = "no number; a value is one, or true/false, or empty where there is none"


@dataclass(frozen=True)
class ColumnRoles:
    """The role of each column."""

    keys: tuple[str, ...]
    values: Mapping[str, Bounds]
    label: str | None
    features: tuple[str, ...] | None = None
    """None: every column that is no secret, is not left out, and holds neither dates nor ids."""
    leave_out: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """How features become bytes; the kind of others is chosen."""
    drop_unlabelled: bool = False
    """Leave out rows without a label; else they are refused."""

    def faults(self) -> Iterator[str]:
        """Missing or contradictory roles."""
        if not self.values and self.label is None:
            yield "name what is to be learned: a value to add up, or a label to train on"
        if self.leave_out and (self.features is not None or self.kinds.keys() & set(self.leave_out)):
            yield "name the features, or what is left out of them: one follows from the other"
        for name in (*self.keys, *self.values):
            if not _NAME.fullmatch(name):
                yield f"column {name!r} cannot be declared: rename it, to letters, digits, spaces and _.:/-"
        # Helpers read keys and features, so secrets must be neither.
        named = dict.fromkeys((*self.kinds, *(self.features or ())), "feature")
        open_columns = named | dict.fromkeys(self.keys, "key")
        for name, what in open_columns.items():
            if name in self.values or name == self.label:
                yield f"column {name!r} is a {what}, which helpers read, and a secret: choose one of them"
        if COUNT in self.values:
            yield f"a value cannot be called {COUNT!r}: that is the number of records; rename it"
        for name, (low, high) in self.values.items():
            if not -MAX_NUMBER <= low <= high <= MAX_NUMBER or low == high == 0:
                yield f"value {name!r} is from {low} to {high}: give bounds from low to high"

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse a given encoder that has a secret column: helpers read its columns."""
        if self.kinds or self.features is not None or self.leave_out:
            raise BadSimulation("an encoder has features and kinds of its own: give it, or those")
        secret = {*self.values, self.label}
        if both := [column.name for column in encoder.columns if column.name in secret]:
            raise BadSimulation(
                f"the encoder has column {both[0]!r}, which is a secret, and helpers read features: fit one "
                "without it (leave_out)"
            )


@dataclass(frozen=True)
class Users:
    """The table, one row per person."""

    keys: Mapping[str, list[Key]]
    values: Mapping[str, NDArray[np.int64 | np.float64]]
    """Only browsers know these and the label."""
    label: NDArray[np.int64] | None
    encoder: Encoder | None
    features: NDArray[np.uint8] | None
    known: tuple[Column, ...]
    """The columns of the features, as the ad server has them."""
    excluded: Mapping[str, str]
    """Columns that are no features because nobody asked for them, and why not."""
    size: int
    notes: tuple[str, ...]
    """What the user should know about how the table was read."""
    leaks: tuple[str, ...]
    """Warnings about features that may reveal secrets."""

    @property
    def digest(self) -> str:
        """A digest of all that browsers report, to recognise the table."""
        columns = [np.asarray(column, "U").tobytes() for column in self.keys.values()]
        numbers = [*self.values.values(), *(each for each in (self.label, self.features) if each is not None)]
        parts = [*columns, *(np.ascontiguousarray(each).tobytes() for each in numbers)]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def read_users(table: Table, wanted: ColumnRoles, encoder: Encoder | None = None) -> Users:
    """Read a table. Errors name the column and the row, or the line of its file."""
    if fault := next(wanted.faults(), None):
        raise BadSimulation(fault)
    if encoder is not None:
        wanted.check_encoder(encoder)
    named = list(dict.fromkeys([*wanted.keys, *wanted.values, *([wanted.label] if wanted.label else [])]))
    # Store rows that can be read only once; any other table is read in place.
    everything = list(table) if isinstance(table, Iterator) else table
    source = tables.by_name(everything, named if wanted.label is None else None)
    notes: list[str] = []
    read = {column.name: column for column in tables.read(source, named)}
    rows = np.arange(len(next(iter(read.values()))))
    if wanted.label is not None:
        rows = _labelled(read[wanted.label], wanted.drop_unlabelled, notes)
        read = {name: column.take(rows) for name, column in read.items()}
    values = {name: _amounts(read[name], bounds, notes) for name, bounds in wanted.values.items()}
    keys = {name: key_cells(read[name]) for name in wanted.keys}
    notes += (
        f"key {name} has a different entry in nearly every row: hardly any group of it has k records"
        for name, entries in keys.items()
        if len(entries) >= MIN_ROWS and len({*entries}) > TELLING * len(entries)
    )
    if wanted.label is None:
        return Users(keys, values, None, None, None, (), {}, len(rows), tuple(notes), ())
    leaks: list[str] = []
    label, excluded = _binary(read[wanted.label]), dict[str, str]()
    if encoder is None:
        known = _features(source, wanted, rows, excluded, leaks)
        encoder = Encoder.fit(known, wanted.kinds, least=max(1, min(LEAST, len(rows) // 4)))
    else:
        known = {fitted.name: _one(source, fitted.name, rows) for fitted in encoder.columns}
    features = encoder.encode(known)
    leaks += _telling(encoder, features, label)
    columns = tuple(known.values())
    return Users(
        keys, values, label, encoder, features, columns, excluded, len(rows), tuple(notes), tuple(leaks)
    )


def _labelled(column: Column, drop: bool, notes: list[str]) -> NDArray[np.intp]:
    """The rows that have a label. Nobody knows what the others did: that is no 0."""
    empty = column.absent[column.places]
    if count := int(empty.sum()):
        if not drop:
            change = f"no label, as in {count} of {len(empty)} rows: fill them in, or leave such rows out"
            where = column.where(int(np.flatnonzero(column.absent)[0]))
            raise ColumnDoesNotFit(column.name, where, f"{change} (--drop-unlabelled, drop_unlabelled=True)")
        notes.append(f"{column.name}: {count} rows without a label are left out")
    return np.flatnonzero(~empty)


def _features(
    source: Mapping[str, Any],
    wanted: ColumnRoles,
    rows: NDArray[np.intp],
    excluded: dict[str, str],
    leaks: list[str],
) -> dict[str, Column]:
    """The named features; else every column that is no secret and fit to be one. Keys are features too."""
    for name in wanted.leave_out:
        if name not in source:
            raise UnknownColumn(name, source)
    secret = {*wanted.values, *wanted.leave_out, wanted.label}
    named = [name for name in source if name not in secret] if wanted.features is None else wanted.features
    asked, columns = {*(wanted.features or ()), *wanted.kinds}, dict[str, Column]()
    for name in dict.fromkeys((*named, *wanted.kinds)):
        try:
            column = _one(source, name, rows)
        except ColumnDoesNotFit as error:
            if name in asked:
                raise
            excluded[name] = str(error).partition(": ")[2]
            continue
        reason = why_not(column, is_key=name in wanted.keys)
        if reason is None or name in asked:
            columns[name] = column
        else:
            excluded[name] = reason
        if reason is not None and name in asked:
            leaks.append(f"{name} has {reason}: if it names people, leave it out")
    if not columns:
        raise BadSimulation("no column is left to be a feature: name some, or leave fewer out")
    return columns


def _one(source: Mapping[str, Any], name: str, rows: NDArray[np.intp]) -> Column:
    return tables.read(source, [name])[0].take(rows)


def _telling(encoder: Encoder, features: NDArray[np.uint8], label: NDArray[np.int64]) -> Iterator[str]:
    """Features that reveal the label to helpers, mostly because they are known only after the fact."""
    byte = 0
    for fitted in encoder.columns:
        width = len(fitted.names())
        scores = [_auc(features[:, place], label) for place in range(byte, byte + width)]
        if max(max(score, 1 - score) for score in scores) > TELLING:
            yield (
                f"{fitted.name} tells the label almost alone, and helpers read features: if it is known only "
                "afterwards, leave it out or make it a value"
            )
        byte += width


def _auc(byte: NDArray[np.uint8], label: NDArray[np.int64]) -> float:
    """How often the byte is larger where the label is 1; ties count half."""
    counts = [np.bincount(byte[label == each], minlength=256).astype(np.float64) for each in (0, 1)]
    return Binary(np.stack(counts, axis=1), 0.0, np.linspace(0, 1, 257)).auc.value


def _amounts(column: Column, bounds: Bounds, notes: list[str]) -> NDArray[np.int64 | np.float64]:
    """Numbers within the bounds; 0 where a cell is empty: such a person has nothing to add."""
    distinct = np.zeros(len(column.values))
    distinct[~column.absent] = column.present(_amount, _NOT_A_NUMBER)
    kept = np.clip(distinct, min(bounds[0], 0), max(bounds[1], 0))
    cut = f"cut to {bounds[0]} … {bounds[1]}"
    for changed, how in (
        (column.absent, "empty, which counts as 0"),
        (kept % 1 != 0, "rounded to whole numbers: up or down at random, so that their mean stays"),
        (kept != distinct, cut),
    ):
        if rows := int(column.counts[changed].sum()):
            notes.append(f"{column.name}: {rows} values are {how}")
    return (kept if (kept % 1).any() else kept.astype(np.int64))[column.places]


def _amount(value: Value) -> float:
    amount = number(value) if can_read(number, value) else float(boolean(value))
    if not math.isfinite(amount):
        raise ValueError
    return amount


def _binary(column: Column) -> NDArray[np.int64]:
    """Whether each person converted."""
    labels = np.array(column.present(_either, _NOT_BINARY), np.int64)[column.places]
    if len(labels) and labels.min() == labels.max():
        raise ColumnDoesNotFit(column.name, None, f"is {labels[0]} in every row: nothing can be learned")
    return labels


def _either(value: Value) -> int:
    return int(boolean(value if can_read(boolean, value) else number(value)))
