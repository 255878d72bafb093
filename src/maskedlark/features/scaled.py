"""Numbers as one byte: a range from the fitted column, clipped, 0 at its low end and 255 at its high end."""

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from maskedlark.errors import NotDeclared
from maskedlark.features.column import Column, Value
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.features.kinds import ON, Fitted, Kind, Rows

LARGEST = 1e300
"""Beyond it a range's width could be infinite."""
NOT_A_NUMBER = (
    "not a number; clean it, or take the column as categories or hashed: OneHot() or Hashed(m), and in a "
    "terminal --kind NAME=categories or NAME=hashed:32"
)


@dataclass(frozen=True)
class Scaled(Kind):
    """A number on a scale of 256 steps.

    The range lies between two quantiles (0 and 1: minimum and maximum), so that a few outliers do not squeeze
    all others into one byte. It is public, and each end has at least `least` rows at or beyond it. `low` and
    `high` declare it instead, from public knowledge.
    """

    low: float | None = None
    high: float | None = None
    quantiles: tuple[float, float] = (0.01, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(map(_is_end, ends)):
            raise NotDeclared(f"a range's ends are numbers of magnitude up to {LARGEST:g}, not {self}")
        if len(ends) == 2 and ends[0] >= ends[1]:
            raise NotDeclared(f"a range needs low < high, not {self.low} and {self.high}")
        if not 0 <= self.quantiles[0] < self.quantiles[1] <= 1:
            raise NotDeclared(f"quantiles are two ascending numbers from 0 to 1, not {self.quantiles}")

    def fit(self, column: Column, least: int) -> "ScaledColumn":
        """Fit the range, and the median, which replaces missing values."""
        numbers = _numbers(column)
        finite = np.isfinite(numbers) & (np.abs(numbers) <= LARGEST)
        ordered = np.sort(np.repeat(numbers[finite], column.counts[finite]))
        low, high = self._range(column.name, ordered, least)
        middle = ordered[(len(ordered) - 1) // 2 :][:1]
        indicator = self.wants_indicator(np.isnan(numbers))
        fitted = ScaledColumn(name=column.name, indicator=indicator, low=low, high=high, fill=0)
        return fitted.model_copy(update={"fill": int(fitted.scale(middle).sum())})

    def _range(self, name: str, ordered: NDArray[np.float64], least: int) -> tuple[float, float]:
        low, high = self.low, self.high
        if low is None or high is None:
            fitted = self._ends(name, ordered, least)
            low, high = fitted[0] if low is None else low, fitted[1] if high is None else high
        if low > high:
            change = "its numbers are all outside the declared range; declare both ends"
            raise ColumnDoesNotFit(name, None, change)
        return float(low), float(high)

    def _ends(self, name: str, ordered: NDArray[np.float64], least: int) -> tuple[float, float]:
        count = len(ordered)
        if count < 2 * least:
            change = (
                f"has {count} numbers; a range that shows nobody needs {2 * least}: "
                "declare Scaled(low=…, high=…), leave it out, or lower `least`"
            )
            raise ColumnDoesNotFit(name, None, change)
        # If most rows have one value, the quantiles meet there; then use the widest allowed range.
        widest = least - 1, count - least
        first = max(widest[0], math.floor(self.quantiles[0] * (count - 1)))
        last = min(widest[1], math.ceil(self.quantiles[1] * (count - 1)))
        if ordered[first] == ordered[last]:
            first, last = widest
        return float(ordered[first]), float(ordered[last])


class ScaledColumn(Fitted):
    """A fitted range."""

    kind: Literal["scaled"] = "scaled"
    low: float
    high: float
    fill: int = Field(ge=0, le=ON)
    """The byte of a missing number: the fitted median's."""

    @property
    def how(self) -> str:
        """The range."""
        return f"number from {self.low:g} to {self.high:g}"

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        # NaN fails every comparison, so it is refused here too.
        if not -LARGEST <= self.low <= self.high <= LARGEST:
            raise ValueError(f"its ends are two ascending numbers of magnitude up to {LARGEST:g}")
        return self

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """One byte each."""
        numbers = _numbers(column)
        absent = np.isnan(numbers)
        rows = np.full((len(numbers), 1), self.fill, np.uint8)
        rows[~absent, 0] = self.scale(numbers[~absent])
        return rows, absent

    def scale(self, numbers: NDArray[np.float64]) -> Rows:
        """Numbers, clipped to the range, at the nearest of 256 steps."""
        if self.low == self.high:
            # A constant column: a byte can only tell whether a number is above it.
            return (numbers > self.high) * np.uint8(ON)
        within = np.clip(numbers, self.low, self.high) - self.low
        return np.rint(within * ON / (self.high - self.low)).astype(np.uint8)


def _is_end(end: object) -> bool:
    return isinstance(end, int | float) and abs(end) <= LARGEST


def _numbers(column: Column) -> NDArray[np.float64]:
    """Every distinct value as a number; missing ones as NaN."""
    numbers = np.full(len(column.values), np.nan)
    numbers[~column.absent] = column.present(number, NOT_A_NUMBER)
    # Minus zero becomes zero: which of the two came first must not show in the range.
    return numbers + 0.0


def number(value: Value) -> float:
    """A number, or a text of one. Not 1_000, which Python would read and no table means."""
    if not isinstance(value, str | Real | Decimal):
        raise TypeError
    if isinstance(value, str) and "_" in value:
        raise ValueError
    return float(value)
