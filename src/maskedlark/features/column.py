"""One column of a table as its distinct values and each row's index into them.

Only distinct values are encoded: fast for many rows, and the same path for one, so that training and serving
cannot differ.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.features.errors import ColumnDoesNotFit, TableDoesNotFit

Value = Any
"""A text, number, boolean, or one of the forms of a missing value."""
T = TypeVar("T")

_UNREADABLE = (TypeError, ValueError, OverflowError)


@dataclass(frozen=True)
class Column:
    """A column as its distinct values and their places."""

    name: str
    values: list[Value]
    places: NDArray[np.intp]
    """Every row's index into `values`."""
    lines: Sequence[int] | None = None
    """Every row's line in the file that the table was read from."""

    @classmethod
    def of(cls, name: str, cells: Any) -> "Column":  # noqa: ANN401 - whatever a table holds its columns in
        """From a sequence, a numpy array, anything with `to_numpy`, or a column that was read already."""
        if isinstance(cells, Column):
            return replace(cells, name=name)
        if isinstance(cells, str | bytes) or not isinstance(cells, Iterable):
            raise TableDoesNotFit(f"column {name!r} is one value, not a sequence; for one row pass [row]")
        plain = _plain(name, cells)
        if isinstance(plain, np.ndarray):
            distinct, places = np.unique(plain, return_inverse=True)
            return cls(name, distinct.tolist(), places)
        return cls(name, *_distinct(name, plain))

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def absent(self) -> NDArray[np.bool_]:
        """Which distinct values are missing."""
        return np.array([is_missing(value) for value in self.values], bool)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many rows have each distinct value."""
        return np.bincount(self.places, minlength=len(self.values))

    def cells(self) -> list[Value]:
        """The value of every row."""
        return [self.values[place] for place in self.places.tolist()]

    def take(self, rows: NDArray[np.intp]) -> "Column":
        """The column of these rows alone."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        used, places = np.unique(self.places[rows], return_inverse=True)
        lines = None if self.lines is None else [self.lines[row] for row in rows.tolist()]
        return Column(self.name, [self.values[place] for place in used.tolist()], places, lines)

    def where(self, value: int) -> str:
        """The first row that has a distinct value, for errors."""
        row = int(np.flatnonzero(self.places == value)[0])
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def present(self, read: Callable[[Value], T], change: str) -> list[T]:
        """`read` of every distinct value that is not missing. Errors name the row of an unreadable value."""
        there = []
        for place in np.flatnonzero(~self.absent).tolist():
            try:
                there.append(read(self.values[place]))
            except _UNREADABLE:
                break
        else:
            return there
        # Raised out here: the cause would show the value, and its row is enough to find it.
        raise ColumnDoesNotFit(self.name, self.where(place), change)


def texts(column: Column) -> list[str]:
    """Every distinct category that is not missing, as a text."""
    return column.present(text, "neither text nor number; turn it into a text first")


def text(value: Value) -> str:
    """A category's text: the same for 3, 3.0 and "3", since data frames with missing values hold floats."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    if not isinstance(value, str | int):
        raise TypeError
    return str(value)


def can_read(read: Callable[[Value], object], value: Value) -> bool:
    """Whether `read` accepts a value."""
    try:
        read(value)
    except _UNREADABLE:
        return False
    return True


def is_missing(value: Value) -> bool:
    """None, NaN, the empty text, and pandas' forms of them."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str):
        return not value
    # pandas is not imported: its NA has no truth value, so it is recognised by its type's name.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _plain(name: str, cells: Any) -> NDArray[Any] | list[Value]:  # noqa: ANN401
    """Cells as a numpy array if it holds exactly the same values, otherwise as a list."""
    if hasattr(cells, "to_numpy"):
        cells = cells.to_numpy()
    if not isinstance(cells, np.ndarray):
        # Not through numpy: it would turn [1.0, "a"] into texts, and large integers into floats.
        return list(cells)
    if cells.ndim != 1:
        raise TableDoesNotFit(f"column {name!r} has {cells.ndim} dimensions, not one; are there two of it?")
    if cells.dtype.kind in "mM":
        raise ColumnDoesNotFit(name, None, "holds moments; turn them into numbers, such as days since a date")
    if isinstance(cells, np.ma.MaskedArray) or cells.dtype.kind not in "biufU":
        listed: list[Value] = cells.tolist()
        return listed
    return cells


def _distinct(name: str, cells: list[Value]) -> tuple[list[Value], NDArray[np.intp]]:
    """Distinct values in order of appearance. 1, True and 1.0 are three, because types count."""
    seen: dict[tuple[type, Value], int] = {}
    try:
        places = [seen.setdefault((type(cell), cell), len(seen)) for cell in cells]
    except TypeError:
        raise ColumnDoesNotFit(name, None, "holds lists or other objects; make it texts or numbers") from None
    values = [cell.item() if isinstance(cell, np.generic) else cell for _, cell in seen]
    return values, np.array(places, np.intp)
