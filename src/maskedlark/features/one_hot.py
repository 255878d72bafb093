"""Categories as one byte each: the known ones by name, one byte for all others."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.features.category import texts
from maskedlark.features.column import Column
from maskedlark.features.kind import MOST_BYTES, Fitted, Kind, Rows, check_indicator, check_whole, spread
from maskedlark.features.saved import Fields


@dataclass(frozen=True)
class OneHot(Kind):
    """One byte a category, for the `most` most frequent that at least `least` rows have; the rest are other.

    The categories are public, so one that few rows have would tell about those few.
    """

    most: int = 32
    least: int | None = None
    """None: what the encoder is fitted with."""
    indicator: bool | None = None

    def __post_init__(self) -> None:
        check_indicator(self.indicator)
        check_whole(self.most, 1, MOST_BYTES, "the most categories of a column")
        if self.least is not None:
            check_whole(self.least, 1, 1 << 31, "the least rows of a category")

    def fit(self, column: Column, least: int) -> "OneHotColumn":
        """The most frequent first, and by their texts where equally frequent: rows' order does not matter."""
        count: Counter[str] = Counter()
        for text, rows in zip(texts(column), column.counts[~column.absent].tolist(), strict=True):
            count[text] += rows
        ordered = sorted(count.items(), key=lambda item: (-item[1], item[0]))
        floor = least if self.least is None else self.least
        known = tuple(text for text, rows in ordered[: self.most] if rows >= floor)
        return OneHotColumn(column.name, self.wants_indicator(column.absent), known)


@dataclass(frozen=True)
class OneHotColumn(Fitted):
    """Known categories. Every row has exactly one byte on, the indicator among them."""

    kind: ClassVar[str] = "one-hot"

    categories: tuple[str, ...]

    def own_names(self) -> list[str]:
        """One a category, then the others'."""
        return [*(f"{self.name} = {category}" for category in self.categories), f"{self.name} is other"]

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """What is missing counts as other where no indicator says so."""
        other = len(self.categories)
        place = {category: place for place, category in enumerate(self.categories)}
        present = np.array([place.get(text, other) for text in texts(column)], np.intp)
        return spread(present, column.absent, -1 if self.indicator else other, other + 1), column.absent

    @classmethod
    def read(cls, fields: Fields) -> "OneHotColumn":
        """From a saved encoder."""
        return cls(
            name=fields.text("name"),
            indicator=fields.flag("indicator"),
            categories=fields.texts("categories", MOST_BYTES),
        )
