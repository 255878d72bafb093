"""Columns that are no features unless somebody asks for them: dates, ids, and what names a row.

A model cannot use them as they are: each of their values is new at serving, or stands for one person.
"""

import re
from collections.abc import Sequence
from datetime import date, time, timedelta

from maskedlark.features.column import Column, Value, can_read, text
from maskedlark.features.scaled import number

MIN_ROWS = 20
"""Of fewer rows nothing can be told."""
FEW = 32
"""So many ids are categories, such as those of campaigns; more are people, or things that come and go."""
_MOSTLY = 0.9
_MONTH = r"[A-Za-z]{3,9}\.?"
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
    rf"|\d{{1,2}}[-/. ]+(\d{{1,2}}|{_MONTH})[-/., ]+\d{{2,4}}"
    rf"|({_MONTH},? )?{_MONTH} \d{{1,2}}(st|nd|rd|th)?,? \d{{4}})"
    r"([ T,]+\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?( ?(Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?"
)
_DIGITS = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_SINCE_1970 = 946_684_800, 2_208_988_800
"""Seconds to 2000, and to 2040; no other numbers are all of this size. Or thousandths, millionths …"""
_UNITS = 1, 10**3, 10**6, 10**9
_NAMES_ROWS = re.compile(
    r"(?i:(^|[\W_])(id|ids|uuid|guid|index|key|e[-_]?mail|username|cookie|ip)$)|[a-z](Id|ID|Key)$"
)
_NAMES_SOMEBODY = re.compile(
    r"(?i)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16,}|[^@\s]+@[^@\s]+\.[a-z]{2,}"
)


def why_not(column: Column, *, is_key: bool = False) -> str | None:
    """Why a column is no feature by itself; None if it is one. `is_key`: somebody counts by it."""
    present = [value for value, gone in zip(column.values, column.absent, strict=True) if not gone]
    rows = int(column.counts[~column.absent].sum())
    if not present:
        return None
    numbers = [number(value) for value in present] if all(map(_is_number, present)) else None
    if _are_dates(present, numbers, rows):
        return "dates"
    if all(isinstance(value, timedelta) for value in present):
        return "times between dates; turn them into numbers"
    if numbers is None and not all(can_read(text, value) for value in present):
        return "neither texts nor numbers"
    return _what_names_rows(column, present, numbers, rows) or (
        None if is_key else _ids(column, present, numbers)
    )


def _is_number(value: Value) -> bool:
    return not isinstance(value, bool) and can_read(number, value)


def _are_dates(present: Sequence[Value], numbers: Sequence[float] | None, rows: int) -> bool:
    """Objects of a calendar or clock, texts in the usual forms, 20260105, or seconds since 1970."""
    if all(isinstance(value, date | time) for value in present):
        return True
    if numbers is None:
        return all(isinstance(value, str) and _DATE.fullmatch(value.strip()) for value in present)
    if rows < MIN_ROWS:
        return False
    low, high = _SINCE_1970
    if any(low * unit <= min(numbers) and max(numbers) < high * unit for unit in _UNITS):
        return True
    return all(each.is_integer() and _DIGITS.fullmatch(f"{each:.0f}") for each in numbers)


def _what_names_rows(
    column: Column, present: Sequence[Value], numbers: Sequence[float] | None, rows: int
) -> str | None:
    """Another value in nearly every row, unless it measures something."""
    if rows < MIN_ROWS or len(present) <= _MOSTLY * rows:
        return None
    if numbers is None:
        return (
            "a different text in nearly every row" if len(present) < rows else "a different text in every row"
        )
    if len(present) < rows or not all(each.is_integer() for each in numbers):
        return None
    counts_on = max(numbers) - min(numbers) < 2 * rows
    return "a different whole number in every row" if counts_on or _NAMES_ROWS.search(column.name) else None


def _ids(column: Column, present: Sequence[Value], numbers: Sequence[float] | None) -> str | None:
    """Ids of people or things, though some have several rows."""
    if numbers is not None and not all(each.is_integer() for each in numbers):
        return None
    named = len(present) > FEW and _NAMES_ROWS.search(column.name)
    somebody = all(isinstance(value, str) and _NAMES_SOMEBODY.fullmatch(value.strip()) for value in present)
    return f"{len(present):,} different ids" if named or (somebody and len(present) > 1) else None
