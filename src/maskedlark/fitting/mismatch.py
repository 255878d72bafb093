"""Rows of the ad server and records of the helpers that differ in number: said, and warned of if by much."""

import math
import warnings

from maskedlark.fitting.errors import RowsDiffer

_MANY = 0.1
"""Rows and real records that differ by more than this part are warned of."""


def said(rows: int, records: int, real_records: float) -> str:
    """How many rows and records there are, and how many one side lacks."""
    lacks = rows - real_records
    counted = (
        f"{rows:,} rows here, {records:,} records at the helpers, of which {real_records:,.0f} are expected "
        "to be real"
    )
    # Nobody knows how many are fakes: a difference within three deviations of that says nothing.
    if abs(lacks) <= 3 * math.sqrt(max(0.0, records - real_records)):
        return f"{counted}: as many, as far as anybody can tell"
    who = "helpers lack" if lacks > 0 else "this table lacks"
    return f"{counted}: {who} about {abs(lacks):,.0f}"


def differ(rows: int, real_records: float) -> bool:
    """Whether they differ by much."""
    return abs(rows - real_records) > _MANY * max(rows, real_records)


def warn(rows: int, records: int, real_records: float, stacklevel: int) -> None:
    """Warn if they differ by much. `stacklevel`: whose line is shown, as of a warning of the caller's."""
    if differ(rows, real_records):
        warnings.warn(said(rows, records, real_records), RowsDiffer, stacklevel=stacklevel + 1)
