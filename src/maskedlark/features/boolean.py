"""Yes or no as one byte."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.features.column import Column, Value
from maskedlark.features.kind import ON, Fitted, Kind, Rows, check_indicator
from maskedlark.features.saved import Fields

TEXTS = {"true": True, "yes": True, "t": True, "y": True, "1": True} | {
    "false": False, "no": False, "f": False, "n": False, "0": False,
}  # fmt: skip
NOT_BOOLEAN = "neither yes nor no (true/false, yes/no, t/f, y/n, 1/0); clean it, or declare OneHot()"


@dataclass(frozen=True)
class Boolean(Kind):
    """255 for yes, 0 for no and for what is missing."""

    indicator: bool | None = None

    def __post_init__(self) -> None:
        check_indicator(self.indicator)

    def fit(self, column: Column, least: int) -> "BooleanColumn":  # noqa: ARG002 - it shows nothing
        """Nothing to fit but the indicator; what is not boolean is refused now, not at serving."""
        column.present(boolean, NOT_BOOLEAN)
        return BooleanColumn(column.name, self.wants_indicator(column.absent))


@dataclass(frozen=True)
class BooleanColumn(Fitted):
    """Yes or no."""

    kind: ClassVar[str] = "boolean"

    def own_names(self) -> list[str]:
        """The column's own name."""
        return [self.name]

    def encode_distinct(self, column: Column) -> tuple[Rows, NDArray[np.bool_]]:
        """One byte each."""
        rows = np.zeros((len(column.values), 1), np.uint8)
        rows[~column.absent, 0] = np.array(column.present(boolean, NOT_BOOLEAN), bool) * np.uint8(ON)
        return rows, column.absent

    @classmethod
    def read(cls, fields: Fields) -> "BooleanColumn":
        """From a saved encoder."""
        return cls(name=fields.text("name"), indicator=fields.flag("indicator"))


def boolean(value: Value) -> bool:
    """True or false, as booleans, 0 and 1, and the usual texts."""
    if isinstance(value, str):
        answer = TEXTS.get(value.strip().casefold())
    else:
        answer = bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None
    if answer is None:
        raise ValueError
    return answer
