"""What an analyst writes: values, groupings and filters -> the arguments of `sums`; and what it may cost."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

from maskedlark.core.records import Entry
from maskedlark.errors import BadArguments


class Between(NamedTuple):
    """Integers in a range, both ends included; None leaves an end open."""

    min: int | None = None
    max: int | None = None


Grouping = str | list[str] | tuple[str, ...]
"""The keys of one table: one, several, or none for the total."""
Groupings = list[list[str]] | list[tuple[str, ...]] | tuple[tuple[str, ...], ...]
Where = Mapping[str, Entry | Sequence[Entry] | Between]
"""By key: an entry, several entries of which one must match, or a range of numbers."""


def check_cost(noise: object, epsilon: object) -> None:
    """Refuse what no query can cost. An infinite ε would take all that is left of a budget."""
    for name, given in (("noise", noise), ("epsilon", epsilon)):
        if given is not None and not is_over_0(given):
            raise BadArguments(f"{name}={given!r}: it is a finite number over 0, or None")
    if noise is not None and epsilon is not None:
        raise BadArguments("give the noise or what it may cost, not both: one follows from the other")


def is_over_0(given: object) -> bool:
    """Whether it is a finite number over 0: no NaN, no text, no truth value."""
    return not isinstance(given, bool) and isinstance(given, Real) and 0 < float(given) < math.inf


def sums(values: Sequence[str], by: Grouping | Groupings, where: Where | None) -> dict[str, Any]:
    """The arguments of `sums`. The function checks the names against the document."""
    if isinstance(values, str):
        values = [values]
    filters = [_filter(key, wanted) for key, wanted in (where or {}).items()]
    return {"values": list(values), "by": _groupings(by), "where": filters}


def _groupings(by: Grouping | Groupings) -> list[list[str]]:
    """One list of keys for every table."""
    if isinstance(by, str):
        return [[by]]
    if is_several(by):
        return [list(keys) for keys in by]
    return [[str(key) for key in by]]


def is_several(by: Grouping | Groupings) -> bool:
    """Whether several tables are wanted: `by` holds lists, not names."""
    return not isinstance(by, str) and bool(by) and not isinstance(by[0], str)


def _filter(key: str, wanted: Entry | Sequence[Entry] | Between) -> dict[str, Any]:
    if isinstance(wanted, Between):
        ends = {"min": wanted.min, "max": wanted.max}
        span = {end: _entry(key, number) for end, number in ends.items() if number is not None}
        if not span:
            raise BadArguments(f"a filter on {key} has a min, a max, or both")
        return {"key": key, **span}
    several = isinstance(wanted, Iterable) and not isinstance(wanted, str)
    entries = list(wanted) if several else [wanted]  # type: ignore[arg-type]
    return {"key": key, "among": [_entry(key, entry) for entry in entries]}


def _entry(key: str, entry: object) -> object:
    """A string, or an integer of any library."""
    if isinstance(entry, str | bool):
        return entry
    try:
        return operator.index(entry)  # type: ignore[arg-type]
    except TypeError:
        raise BadArguments(f"a filter on {key} takes texts and whole numbers") from None
