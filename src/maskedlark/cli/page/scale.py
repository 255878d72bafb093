"""From numbers to places on a plot, and the round numbers that an axis shows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Numbers from low to high lie evenly between two places."""

    low: float
    high: float
    start: float
    end: float

    def __post_init__(self) -> None:
        assert self.low < self.high, "a scale has a width"

    def __call__(self, number: float) -> float:
        """The place of a number."""
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, evenly apart, and no more than so many."""
    assert low < high, "a scale has a width"
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in _ROUND if power * each >= least * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def beyond(high: float, most: int = 6) -> float:
    """A round number at or over this one: where an axis from 0 ends."""
    step = ticks(0, high, most)[1]
    return round(math.ceil(high / step - 1e-9) * step, 12)


def tenths(numbers: Iterable[float]) -> tuple[float, float]:
    """The tenths below and over all of them."""
    found = list(numbers)
    low, high = math.floor(min(found) * 10 + 1e-9), math.ceil(max(found) * 10 - 1e-9)
    return low / 10, max(high, low + 1) / 10


def shown(number: float) -> str:
    """As an axis shows it."""
    return minus(f"{number:,.10g}")


def minus(text: str) -> str:
    """With the sign that is as wide as a plus."""
    return text.replace("-", "\N{MINUS SIGN}")
