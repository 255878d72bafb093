"""The encoder: a table's columns as byte features. Run by the ad server, for training and for serving.

It is fitted without labels and never takes one. It is public: browsers and helpers see its bytes, and
anyone may see its file. It is fitted on features that the ad server has anyway, but a public list of
categories or the end of a public range could still tell about the few who are that rare: whatever stands for
fewer than `least` rows is left out of it. That is a floor against accident, not differential privacy: fit on
data that may be known, or declare ranges and use `Hashed` where that is not enough.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import DuplicateKey, NotDeclared, WrongLength, WrongType
from maskedlark.features import saved, table
from maskedlark.features.boolean import BooleanColumn
from maskedlark.features.choice import choose
from maskedlark.features.errors import TableDoesNotFit, UnknownColumn
from maskedlark.features.hashed import HashedColumn
from maskedlark.features.kind import Fitted, Kind, check_whole
from maskedlark.features.one_hot import OneHotColumn
from maskedlark.features.saved import Fields
from maskedlark.features.scaled import ScaledColumn
from maskedlark.features.table import Table

LEAST = 20
"""Rows that anything public about a column stands for, at least."""
KINDS: dict[str, type[Fitted]] = {
    fitted.kind: fitted for fitted in (BooleanColumn, HashedColumn, OneHotColumn, ScaledColumn)
}


@dataclass(frozen=True)
class Encoder:
    """Fitted columns, in the order of their bytes."""

    columns: tuple[Fitted, ...]

    @classmethod
    def fit(
        cls,
        features: Table,
        columns: Mapping[str, Kind] | None = None,
        *,
        leave_out: Collection[str] = (),
        least: int = LEAST,
    ) -> "Encoder":
        """Fit to every column of a table, by the kinds declared in `columns`, by `choice` for the others.

        Name in `leave_out` what is no feature. Above all the label, if the table has it: it would be encoded
        like any column, and features are in the open. The order of rows does not matter.
        """
        declared, left = dict(columns or {}), {leave_out} if isinstance(leave_out, str) else set(leave_out)
        check_whole(least, 1, 1 << 31, "`least`")
        _check_kinds(declared, left)
        there = table.read(features, leave_out=sorted(left))
        for name in declared:
            if name not in {column.name for column in there}:
                raise UnknownColumn(name, [column.name for column in there])
        if not there or not len(there[0]):
            raise TableDoesNotFit("an encoder is fitted to a table with at least one column and one row")
        return cls(
            tuple((declared.get(column.name) or choose(column)).fit(column, least) for column in there)
        )

    def encode(self, features: Table) -> NDArray[np.uint8]:
        """Rows as bytes: (n, d). Columns that it was not fitted to are not looked at. One row: `[row]`."""
        there = table.read(features, [fitted.name for fitted in self.columns])
        return np.concatenate(
            [fitted.encode(column) for fitted, column in zip(self.columns, there, strict=True)], axis=1
        )

    @property
    def names(self) -> list[str]:
        """What every byte stands for."""
        return [name for fitted in self.columns for name in fitted.names()]

    def __len__(self) -> int:
        return len(self.names)

    def to_json(self) -> str:
        """As it is saved: the same encoder, the same text."""
        return saved.dump([fitted.write() for fitted in self.columns])

    @classmethod
    def from_json(cls, text: str) -> "Encoder":
        """From its text, strictly: it encodes to the byte as before, or is refused."""
        items = saved.load(text)
        if not items:
            raise WrongLength("the encoder has no columns; fit it again")
        columns = tuple(_read(item, number) for number, item in enumerate(items))
        if len({fitted.name for fitted in columns}) != len(columns):
            raise DuplicateKey("the encoder names a column twice; fit it again")
        return cls(columns)

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> "Encoder":
        """Read it from a file, strictly."""
        return cls.from_json(saved.decode(Path(path).read_bytes()))


def _check_kinds(declared: Mapping[str, Kind], left: set[str]) -> None:
    for name, kind in declared.items():
        if not isinstance(kind, Kind):
            raise NotDeclared(f"column {name!r}: declare a kind, such as Scaled() or OneHot(), not {kind!r}")
        if name in left:
            raise NotDeclared(f"column {name!r} is declared and left out; do one of the two")


def _read(item: object, number: int) -> Fitted:
    fields = Fields(item, f"column {number} of the encoder")
    kind = fields.text("kind")
    if kind not in KINDS:
        raise WrongType(
            f"column {number} of the encoder is of no kind that this release knows: {sorted(KINDS)}"
        )
    fitted = KINDS[kind].read(fields)
    fields.done()
    return fitted
