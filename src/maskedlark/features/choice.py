"""The kind that a column gets when its user declares none."""

from maskedlark.features.boolean import Boolean
from maskedlark.features.category import texts
from maskedlark.features.column import Column, Value, can_read
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.features.hashed import Hashed
from maskedlark.features.kind import Kind
from maskedlark.features.one_hot import OneHot
from maskedlark.features.scaled import Scaled, number

MOST_ONE_HOT = 32
BUCKETS = 32


def choose(column: Column) -> Kind:
    """Booleans, numbers (texts of numbers too), few categories by name, many by hash. Run by the ad server.

    Whole numbers are numbers here even where they are codes, such as a region's: declare those OneHot().
    """
    present = [value for value, absent in zip(column.values, column.absent, strict=True) if not absent]
    if not present:
        raise ColumnDoesNotFit(column.name, None, "has no value at all; leave it out, or declare its kind")
    if all(_is_boolean(value) for value in present):
        return Boolean()
    if all(_is_number(value) for value in present):
        return Scaled()
    return OneHot(MOST_ONE_HOT) if len(set(texts(column))) <= MOST_ONE_HOT else Hashed(BUCKETS)


def _is_boolean(value: Value) -> bool:
    # Not 0 and 1: as numbers they get the same bytes, and a later 2 is no error.
    return isinstance(value, bool) or (
        isinstance(value, str) and value.strip().casefold() in ("true", "false")
    )


def _is_number(value: Value) -> bool:
    return not isinstance(value, bool) and can_read(number, value)
