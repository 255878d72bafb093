"""The encoder: a table's columns as byte features. Run by the ad server, for training and for serving.

It never takes a label. It is public: browsers and helpers see its bytes, and anyone may see its file. It is
fitted on features that the ad server has anyway, but a public list of categories or the end of a public range
could still reveal the few who are that rare: whatever stands for fewer than `least` rows is left out. That is
a floor against accidents, not differential privacy: if it is not enough, fit on public data, or declare
ranges and use `Hashed`.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from maskedlark.errors import NotDeclared, UnsupportedVersion
from maskedlark.features import kinds, table
from maskedlark.features.column import Column, Value, can_read, texts
from maskedlark.features.errors import ColumnDoesNotFit, NotAnEncoder, TableDoesNotFit, UnknownColumn
from maskedlark.features.kinds import Fitted, Kind, check_whole
from maskedlark.features.scaled import Scaled, ScaledColumn, number
from maskedlark.features.table import Table

LEAST = 20
"""The least number of rows behind anything public about a column."""
MAX_ONE_HOT = 32
BUCKETS = 32
VERSION = 1
"""Of saved encoders."""
AnyColumn = Annotated[
    kinds.BooleanColumn | kinds.HashedColumn | kinds.OneHotColumn | ScaledColumn, Field(discriminator="kind")
]


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
        """Fit to every column of a table, by the kinds declared in `columns`, by `choose` for the others.

        Name in `leave_out` what is not a feature: above all the label, if the table has it, because features
        are public. The order of rows does not matter.
        """
        declared, left = dict(columns or {}), {leave_out} if isinstance(leave_out, str) else set(leave_out)
        check_whole(least, 1, 1 << 31, "`least`")
        for name, kind in declared.items():
            if not isinstance(kind, Kind):
                raise NotDeclared(f"column {name!r}: declare a kind, as Scaled() or OneHot(), not {kind!r}")
            if name in left:
                raise NotDeclared(f"column {name!r} is declared and left out; do one of the two")
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
        """Rows as bytes: (n, d). Columns that it was not fitted to are ignored. One row: `[row]`."""
        there = table.read(features, [fitted.name for fitted in self.columns])
        return np.concatenate(
            [fitted.encode(column) for fitted, column in zip(self.columns, there, strict=True)], axis=1
        )

    @property
    def names(self) -> list[str]:
        """What every byte stands for."""
        return [name for fitted in self.columns for name in fitted.names()]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many bytes each column has, one after the other; an indicator counts as a column."""
        return tuple(
            width for own in self.columns for width in (len(own.own_names()), 1)[: 1 + own.indicator]
        )

    def __len__(self) -> int:
        return len(self.names)

    def to_json(self) -> str:
        """As saved: equal encoders have equal texts. Floats are in their shortest exact form."""
        columns = [fitted.model_dump() for fitted in self.columns]
        document = {"format": "maskedlark encoder", "version": VERSION, "columns": columns}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @property
    def digest(self) -> bytes:
        """The SHA-256 of its saved form, by which a document names it."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @classmethod
    def from_json(cls, text: str) -> "Encoder":
        """From its text, strictly: it encodes exactly the same bytes as before, or is refused."""
        try:
            document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise NotAnEncoder("the encoder is no JSON; write it again with save()") from error
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is int and version != VERSION:
            raise UnsupportedVersion(
                f"the encoder has version {version}, this release reads {VERSION}; "
                "fit it again, or use the release that wrote it"
            )
        try:
            return cls(_Saved.model_validate(document).columns)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)[:3]
            listed = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
            raise NotAnEncoder(f"the encoder cannot be used: {listed}; fit it again") from None

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> "Encoder":
        """Read it from a file, strictly."""
        try:
            return cls.from_json(Path(path).read_bytes().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise NotAnEncoder("the encoder is no UTF-8 text; write it again with save()") from error


def choose(column: Column) -> Kind:
    """The default kind of a column: boolean, number (also as text), few categories by name, many by hash.

    Integers are numbers here even if they are codes, such as a region's: declare those OneHot().
    """
    present = [value for value, absent in zip(column.values, column.absent, strict=True) if not absent]
    if not present:
        raise ColumnDoesNotFit(column.name, None, "has no value at all; leave it out, or declare its kind")
    if all(_is_boolean(value) for value in present):
        return kinds.Boolean()
    if all(not isinstance(value, bool) and can_read(number, value) for value in present):
        return Scaled()
    few = len(set(texts(column))) <= MAX_ONE_HOT
    return kinds.OneHot(MAX_ONE_HOT) if few else kinds.Hashed(BUCKETS)


def _is_boolean(value: Value) -> bool:
    # Not 0 and 1: as numbers they get the same bytes, and a later 2 is not an error.
    return isinstance(value, bool | str) and str(value).strip().casefold() in ("true", "false")


class _Saved(BaseModel):
    """The JSON of a saved encoder: known keys, right types, no duplicates."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["maskedlark encoder"]
    version: int
    # Not strict: JSON has lists, and no tuples.
    columns: tuple[AnyColumn, ...] = Field(strict=False, min_length=1)

    @field_validator("columns")
    @classmethod
    def _different(cls, columns: tuple[Fitted, ...]) -> tuple[Fitted, ...]:
        if len({fitted.name for fitted in columns}) != len(columns):
            raise ValueError("a column is named twice")
        return columns


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    answer = dict(pairs)
    if len(answer) != len(pairs):
        raise NotAnEncoder("the encoder names a key twice; write it again with save()")
    return answer


def _refuse_constant(name: str) -> NoReturn:
    raise NotAnEncoder(f"the encoder holds {name}, which is no JSON number; write it again with save()")
