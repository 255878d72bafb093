"""What a kind of column is: declared, fitted to a column without any label, then encoding bytes."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import NotDeclared
from maskedlark.features.column import Column
from maskedlark.features.saved import Fields

Rows = NDArray[np.uint8]
ON = 255
MOST_BYTES = 1 << 12
"""The most bytes that one column may become."""


@dataclass(frozen=True)
class Fitted(ABC):
    """One column's encoding, public and final."""

    kind: ClassVar[str]
    """Its name in a saved encoder."""

    name: str
    """The column's."""
    indicator: bool
    """Whether a last byte says that the value is missing."""

    @abstractmethod
    def own_names(self) -> list[str]:
        """What its bytes stand for, the indicator apart."""

    @abstractmethod
    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """The bytes of every distinct value (v, w), the indicator apart, and which values are missing."""

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields) -> "Fitted":
        """From a saved encoder, strictly."""

    def names(self) -> list[str]:
        """What its bytes stand for."""
        return self.own_names() + [f"{self.name} is missing"] * self.indicator

    def encode(self, column: Column) -> Rows:
        """A column as bytes: (n, w). Run by the ad server, for training and for serving alike."""
        rows, absent = self.encode_distinct(column)
        if self.indicator:
            rows = np.concatenate([rows, absent[:, None] * np.uint8(ON)], axis=1)
        return rows[column.places]

    def write(self) -> dict[str, Any]:
        """For a saved encoder."""
        return {"kind": self.kind, **asdict(self)}


class Kind(ABC):
    """What a user declares about a column before it is fitted."""

    indicator: bool | None
    """Whether a byte says that the value is missing; None: where the fitted column has such values."""

    @abstractmethod
    def fit(self, column: Column, least: int) -> Fitted:
        """Fit to a column; nothing public may stand for fewer than `least` rows. Run by the ad server."""

    def wants_indicator(self, absent: NDArray[np.bool_]) -> bool:
        """As declared, or where anything is missing."""
        return bool(absent.any()) if self.indicator is None else self.indicator


def spread(present: NDArray[np.intp], absent: NDArray[np.bool_], if_absent: int, width: int) -> Rows:
    """One-hot rows of distinct values: each at its place, a missing one at `if_absent` (below 0: nowhere)."""
    places = np.full(len(absent), if_absent, np.intp)
    places[~absent] = present
    hot: NDArray[np.bool_] = places[:, None] == np.arange(width)
    return hot * np.uint8(ON)


def check_indicator(indicator: object) -> None:
    """Refuse what is neither of yes, no and automatic."""
    if indicator is not None and not isinstance(indicator, bool):
        raise NotDeclared("an indicator is True, False, or None for: where values are missing")


def check_whole(value: object, low: int, high: int, what: str) -> None:
    """Refuse what is not a whole number in its range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise NotDeclared(f"{what} is a whole number from {low} to {high}, not {value!r}")
