"""Columns that are no features unless somebody asks for them: dates, and what names a row.

A model cannot use them as they are: each of their values is new at serving.
"""

import re

from maskedlark.features.column import Column, can_read
from maskedlark.features.scaled import number

MIN_ROWS = 20
"""Of fewer rows nothing can be told."""
_MOSTLY = 0.9
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/. ](\d{1,2}|[A-Za-z]{3,9})[-/. ]\d{2,4})"
    r"([ T]+\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?( ?(Z|UTC|[+-]\d{2}:?\d{2}))?)?"
)
_NAMES_ROWS = re.compile(r"(?i)(^|[\W_])(id|uuid|guid|index|key)$|[a-z]Id$|[a-z]ID$")


def why_not(column: Column) -> str | None:
    """Why a column is no feature by itself; None if it is one."""
    present = [value for value, gone in zip(column.values, column.absent, strict=True) if not gone]
    rows = int(column.counts[~column.absent].sum())
    if all(isinstance(value, str) and _DATE.fullmatch(value.strip()) for value in present):
        return "dates" if present else None
    if rows < MIN_ROWS or len(present) <= _MOSTLY * rows:
        return None
    if not all(can_read(number, value) for value in present):
        return "another text in nearly every row" if len(present) < rows else "another text in every row"
    numbers = [number(value) for value in present]
    if len(present) < rows or not all(each.is_integer() for each in numbers):
        return None
    counts_on = max(numbers) - min(numbers) < 2 * rows
    return "another whole number in every row" if counts_on or _NAMES_ROWS.search(column.name) else None
