"""Reads any table as columns. No library is imported: a data frame is anything that has named columns."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from maskedlark.features.column import Column
from maskedlark.features.errors import TableDoesNotFit, UnknownColumn

Table = Any
"""A mapping from column name to sequence; an iterable of mappings (`csv.DictReader`); a pandas, polars or
Arrow table; a numpy structured array."""


def read(table: Table, wanted: Sequence[str] | None = None, leave_out: Collection[str] = ()) -> list[Column]:
    """The wanted columns in that order, or all but those left out. Other columns' values are not read."""
    source, leave_out = by_name(table, wanted), dict.fromkeys(leave_out)
    names = [name for name in (source if wanted is None else wanted) if name not in leave_out]
    if not all(isinstance(name, str) for name in names):
        raise TableDoesNotFit("a column's name is a text; rename the others")
    for name in (*names, *leave_out):
        if name not in source:
            raise UnknownColumn(name, source)
    columns = [Column.of(name, source[name]) for name in names]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{column.name!r} {len(column)}" for column in columns)
        raise TableDoesNotFit(f"the columns differ in length: {lengths}")
    return columns


def by_name(table: Table, wanted: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Cells by column name, not read yet."""
    if isinstance(table, Mapping):
        return table
    names = getattr(getattr(table, "dtype", None), "names", None) or getattr(table, "column_names", None)
    if names is None and hasattr(table, "columns"):
        names = table.columns
    if names is not None:
        return {name: table[name] for name in names}
    if hasattr(table, "dtype") or isinstance(table, str | bytes) or not isinstance(table, Iterable):
        raise TableDoesNotFit(f"a {type(table).__name__} is no table: pass columns by name, or rows of dicts")
    return _from_rows(list(table), wanted)


def _from_rows(rows: list[Any], wanted: Sequence[str] | None) -> Mapping[str, Any]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise TableDoesNotFit(f"row {number} is no mapping from column name to value")
        # csv.DictReader puts the cells that have no column under None.
        if None in row:
            raise TableDoesNotFit(f"row {number} has more cells than the header; is a comma unquoted?")
    names = list(wanted if wanted is not None else rows[0] if rows else ())
    for number, row in enumerate(rows, start=1):
        lacking = next((name for name in names if name not in row), None)
        if lacking is not None and number == 1:
            raise UnknownColumn(lacking, row)
        if lacking is not None or (wanted is None and len(row) != len(names)):
            raise TableDoesNotFit(f"row {number} has other columns than row 1; use None for a missing value")
    return {name: [row[name] for row in rows] for name in names}
