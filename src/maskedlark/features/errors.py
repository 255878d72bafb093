"""What the encoder refuses. A message names the column and the line or row, never the value."""

from collections.abc import Iterable

from maskedlark.core.suggestions import nearest
from maskedlark.errors import DecodeError, NotDeclared


class TableDoesNotFit(NotDeclared):
    """Something that is no table, or a table whose columns differ in length."""


class UnknownColumn(NotDeclared):
    """A column that the table does not have."""

    def __init__(self, name: str, there: Iterable[object]) -> None:
        names = [column for column in there if isinstance(column, str)]
        near = nearest(name, names)
        none = "none has a similar name" if names else "it has none at all"
        hint = none if near is None else f"the nearest is {near!r}"
        super().__init__(f"the table has no column {name!r}; {hint}")


class ColumnDoesNotFit(NotDeclared):
    """A column, or one value of it, that its kind cannot encode. Names the row or line, from 1."""

    def __init__(self, column: str, place: str | None, change: str) -> None:
        where = f"column {column!r}" if place is None else f"column {column!r}, {place}"
        super().__init__(f"{where}: {change}")


class NotAnEncoder(DecodeError):
    """A file that is no JSON, or JSON of something else than an encoder."""
