"""A user's own table, a row per person: keys to count by, values to add up, a label, features.

Read before any service is started. In production nobody has such a table: the ad server knows keys and
features, only browsers know values and labels.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.declared import COUNT
from maskedlark.features import table as tables
from maskedlark.features.column import Column, Value, can_read, text
from maskedlark.features.encoder import LEAST, Encoder
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.features.kinds import boolean
from maskedlark.features.scaled import number
from maskedlark.features.table import Table
from maskedlark.parameters.settings import MAX_NUMBER
from maskedlark.simulate.errors import BadSimulation
from maskedlark.training.metrics import Binary
from maskedlark.wire.columns import MAX_KEY_TEXT, Key

Bounds = tuple[int, int]
TELLING = 0.95
"""Features whose AUC is above this are reported to the user."""
_NAME = re.compile(r"[A-Za-z0-9_.:/ -]{1,64}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
_NOT_BINARY = "neither 0 nor 1 (nor true/false, yes/no): a label is one of the two; a number is a value"
_NOT_A_NUMBER = "no number; a value is one, or true/false, or empty where there is none"


@dataclass(frozen=True)
class ColumnRoles:
    """The role of each column."""

    keys: tuple[str, ...]
    values: Mapping[str, Bounds]
    label: str | None
    features: tuple[str, ...] | None = None
    """None: every column without another role that is not left out."""
    leave_out: tuple[str, ...] = ()

    def faults(self) -> Iterator[str]:
        """Missing or contradictory roles."""
        if not self.values and self.label is None:
            yield "name what is to be learned: a value to add up, or a label to train on"
        if self.features is not None and self.leave_out:
            yield "name the features, or what is left out of them: one follows from the other"
        for name in (*self.keys, *self.values):
            if not _NAME.fullmatch(name):
                yield f"column {name!r} cannot be declared: rename it, to letters, digits, spaces and _.:/-"
        # Helpers read keys and features, so secrets must be neither.
        open_columns = dict.fromkeys(self.features or (), "feature") | dict.fromkeys(self.keys, "key")
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
    values: Mapping[str, NDArray[np.int64]]
    """Only browsers know these and the label."""
    label: NDArray[np.int64] | None
    encoder: Encoder | None
    features: NDArray[np.uint8] | None
    known: tuple[Column, ...]
    """The columns of the features, as the ad server has them."""
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
    """Read a table. Errors name the column or row."""
    if fault := next(wanted.faults(), None):
        raise BadSimulation(fault)
    # Store rows that can be read only once; any other table is read in place.
    everything = list(table) if isinstance(table, Iterator) else table
    named = [*wanted.keys, *wanted.values, *([wanted.label] if wanted.label is not None else [])]
    read = {column.name: column for column in tables.read(everything, list(dict.fromkeys(named)))}
    size = len(next(iter(read.values())))
    notes: list[str] = []
    leaks: list[str] = []
    values = {name: _amounts(read[name], bounds, notes) for name, bounds in wanted.values.items()}
    keys = {name: _entries(read[name]) for name in wanted.keys}
    if wanted.label is None:
        return Users(keys, values, None, None, None, (), size, tuple(notes), ())
    if encoder is not None:
        wanted.check_encoder(encoder)
    label = _binary(read[wanted.label])
    encoder = encoder or _fitted(everything, wanted, max(1, min(LEAST, size // 4)), leaks)
    known = tables.read(everything, [fitted.name for fitted in encoder.columns])
    features = encoder.encode(everything)
    leaks += _telling(encoder, features, label)
    return Users(keys, values, label, encoder, features, tuple(known), size, tuple(notes), tuple(leaks))


def _fitted(table: Table, wanted: ColumnRoles, least: int, leaks: list[str]) -> Encoder:
    """An encoder of the named features, or of every column without another role."""
    if wanted.features is not None:
        columns = tables.read(table, wanted.features)
    else:
        other = {*wanted.keys, *wanted.values, *wanted.leave_out, wanted.label or ""} - {""}
        columns = tables.read(table, leave_out=sorted(other))
    if not columns:
        raise BadSimulation("no column is left to be a feature: name some, or leave fewer out")
    leaks += [
        f"{column.name} has another value in every row: if it names people, leave it out"
        for column in columns
        if len(column.values) == len(column) and not all(can_read(number, each) for each in column.values)
    ]
    cells = {each.name: [each.values[place] for place in each.places.tolist()] for each in columns}
    return Encoder.fit(cells, least=least)


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


def _amounts(column: Column, bounds: Bounds, notes: list[str]) -> NDArray[np.int64]:
    """Integers within the bounds; 0 where a cell is empty."""
    distinct = np.zeros(len(column.values))
    distinct[~column.absent] = column.present(_amount, _NOT_A_NUMBER)
    whole = np.rint(distinct)
    low, high = min(bounds[0], 0), max(bounds[1], 0)
    kept = np.clip(whole, low, high).astype(np.int64)
    cut = f"cut to {bounds[0]} … {bounds[1]}"
    for changed, how in ((whole != distinct, "rounded to whole numbers"), (kept != whole, cut)):
        if rows := int(column.counts[changed].sum()):
            notes.append(f"{column.name}: {rows} values are {how}")
    return kept[column.places]


def _amount(value: Value) -> float:
    amount = number(value) if can_read(number, value) else float(boolean(value))
    if not math.isfinite(amount):
        raise ValueError
    return amount


def _binary(column: Column) -> NDArray[np.int64]:
    """Whether each person converted; an empty cell is 0."""
    distinct = np.zeros(len(column.values), np.int64)
    distinct[~column.absent] = column.present(_either, _NOT_BINARY)
    labels = distinct[column.places]
    if len(labels) and labels.min() == labels.max():
        raise ColumnDoesNotFit(column.name, None, f"is {labels[0]} in every row: nothing can be learned")
    return labels


def _either(value: Value) -> int:
    return int(boolean(value if can_read(boolean, value) else number(value)))


def _entries(column: Column) -> list[Key]:
    """Texts, or integers if all are: those can be filtered by range."""
    texts = [
        "" if absent else text(value) for value, absent in zip(column.values, column.absent, strict=True)
    ]
    if long := [place for place, each in enumerate(texts) if len(each.encode()) > MAX_KEY_TEXT]:
        row = int(np.flatnonzero(np.isin(column.places, long))[0])
        raise ColumnDoesNotFit(column.name, row, f"a key has at most {MAX_KEY_TEXT} bytes; shorten it")
    entries: list[Key] = [*map(int, texts)] if all(map(_WHOLE.fullmatch, texts)) else [*texts]
    return [entries[place] for place in column.places.tolist()]
