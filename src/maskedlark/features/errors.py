"""What the encoder refuses. A message names column and row, never the value."""

from collections.abc import Iterable
from difflib import get_close_matches

from maskedlark.errors import DecodeError, NotDeclared


class TableDoesNotFit(NotDeclared):
    """Something that is no table, or a table whose columns differ in length."""


class UnknownColumn(NotDeclared):
    """A column that the table does not have."""

    def __init__(self, name: str, there: Iterable[object]) -> None:
        folded = {column.casefold(): column for column in there if isinstance(column, str)}
        near = get_close_matches(name.casefold(), folded, n=1, cutoff=0)
        hint = f"the nearest is {folded[near[0]]!r}" if near else "it has none at all"
        super().__init__(f"the table has no column {name!r}; {hint}")


class ColumnDoesNotFit(NotDeclared):
    """A column, or one value of it, that its kind cannot encode."""

    def __init__(self, column: str, row: int | None, change: str) -> None:
        place = f"column {column!r}" if row is None else f"column {column!r}, row {row}"
        super().__init__(f"{place}: {change}")


class NotAnEncoder(DecodeError):
    """A file that is no JSON, or JSON of something else than an encoder."""
