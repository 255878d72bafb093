"""A table as an analyst sees it: estimates with their errors, what they cost, and what is not shown.

Every number has the noise of all helpers in it, and its interval accounts for all of it.
"""

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from maskedlark.adserver.combining import Answered, Combined
from maskedlark.adserver.errors import NeedsPandas
from maskedlark.dp import intervals
from maskedlark.dp.mechanisms import Kind
from maskedlark.errors import BadArguments
from maskedlark.functions.function import Group
from maskedlark.ledger.receipt import Balance

if TYPE_CHECKING:
    import pandas as pd


class Estimate(NamedTuple):
    """A private number: the truth is between low and high, with the table's confidence."""

    estimate: int
    error: float
    """The standard deviation of the noise."""
    low: int
    high: int


class Row(NamedTuple):
    """A group and its numbers, in the order of the table's values."""

    group: Group
    numbers: tuple[Estimate, ...]


@dataclass(frozen=True)
class Table:
    """Rows of groups. Iterating gives one dict per row."""

    by: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[Row, ...]
    confidence: float
    k: int
    kind: Kind
    noise: float
    helpers: int
    balance: Balance
    request: str
    """The id by which the table can be shown again at no cost."""
    filtered: bool = False
    max_records: int | None = None
    """The most records of a group, where the datasets have more."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self._names()
        for row in self.rows:
            cells = [*row.group, *(cell for number in row.numbers for cell in number)]
            yield dict(zip(names, cells, strict=True))

    def __str__(self) -> str:
        return "\n".join([*_aligned([self._heads(), *self._cells()], len(self.by)), *self.notes()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self._heads())
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in cells) for cells in self._cells())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        notes = "<br>".join(html.escape(note) for note in self.notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{notes}</p>"

    def to_pandas(self) -> "pd.DataFrame":
        """A DataFrame: a column for every key, and four for every value."""
        try:
            import pandas as pd  # noqa: PLC0415 - needed here only
        except ImportError:
            raise NeedsPandas("pandas is not installed: pip install 'maskedlark[pandas]'") from None
        return pd.DataFrame(list(self), columns=self._names())

    def to_json(self) -> str:
        """Everything, as one JSON object."""
        return json.dumps(
            {
                "by": self.by,
                "values": self.values,
                "rows": list(self),
                "confidence": self.confidence,
                "k": self.k,
                "noise": {"mechanism": self.kind, "multiplier": self.noise, "helpers": self.helpers},
                "cost": self.balance.model_dump(),
                "request": self.request,
            },
            ensure_ascii=False,
        )

    def notes(self) -> list[str]:
        """What a reader must know besides the numbers."""
        cost, most = self.balance, "" if self.max_records is None else f" or more than {self.max_records:,}"
        rows = [f"Groups of fewer than k = {self.k}{most} records are not shown."]
        if not self.rows:
            rows = [f"No group has k = {self.k} records, so none is shown."]
        if not self.rows and most:
            rows = [f"Every group has fewer than k = {self.k}{most} records, so none is shown."]
        if not self.rows and self.filtered:
            rows += ["A filter matches whole entries: the text 7 is not the number 7; a span, only numbers."]
        return [
            *rows,
            f"Each of {self.helpers} helpers added {self.kind} noise of {self.noise:g} times what one record "
            "can change; errors and intervals count all of it.",
            f"This cost ε = {cost.charged_epsilon:.4g} against everybody. {cost}.",
            f"`maskedlark query --resume {self.request}` shows it again for nothing.",
        ]

    def _names(self) -> list[str]:
        """A unique name for every cell of a row: a key may have a value's name."""
        wanted = [
            *self.by,
            *(f"{name}{end}" for name in self.values for end in ("", "_error", "_low", "_high")),
        ]
        names: list[str] = []
        for name in wanted:
            while name in names:
                name += "_"  # noqa: PLW2901
            names.append(name)
        return names

    def _heads(self) -> list[str]:
        interval = f"{self.confidence * 100:g} % interval"
        return [*self.by, *(head for name in self.values for head in (name, "std. error", interval))]

    def _cells(self) -> list[list[str]]:
        return [
            [*map(str, row.group), *(cell for number in row.numbers for cell in _shown(number))]
            for row in self.rows
        ]


def check_confidence(confidence: float) -> None:
    """Refuse an impossible confidence. Run before a query is asked: a mistake must not cost anything."""
    if not 0 < confidence <= 1 - intervals.MIN_DOUBT:
        raise BadArguments("a confidence is over 0 and below 1, as in 0.95")


def tables(answered: Answered, confidence: float) -> list[Table]:
    """The tables of an answer, with errors and intervals. Run by the ad server."""
    check_confidence(confidence)
    return [_table(answered, combined, confidence) for combined in answered.tables]


def _table(answered: Answered, combined: Combined, confidence: float) -> Table:
    names: list[str] = []
    columns: list[list[Estimate]] = []
    for column, numbers in zip(combined.schema.columns, combined.columns, strict=True):
        noise = (answered.kind, answered.noise, column.sensitivity, answered.helpers)
        error, width = intervals.standard_error(*noise), int(intervals.half_width(*noise, confidence))
        # The numbers of a vector are numbered.
        places = [""] if column.width == 1 else [f"[{place}]" for place in range(column.width)]
        names += [f"{column.name}{place}" for place in places]
        columns += [[Estimate(n, error, n - width, n + width) for n in each] for each in numbers.T.tolist()]
    rows = tuple(starmap(Row, zip(combined.rows, zip(*columns, strict=True), strict=True)))
    return Table(
        combined.schema.by,
        tuple(names),
        rows,
        confidence,
        answered.document.k,
        answered.kind,
        answered.noise,
        answered.helpers,
        answered.balance,
        answered.request,
        bool(answered.arguments.get("where")),
    )


def _shown(number: Estimate) -> tuple[str, str, str]:
    return f"{number.estimate:,}", f"{number.error:,.1f}", f"{number.low:,} … {number.high:,}"


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Lines with columns of equal width: keys left-aligned, numbers right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    line = "  ".join(f"{{:{'<' if place < left else '>'}{width}}}" for place, width in enumerate(widths))
    return [line.format(*row).rstrip() for row in rows]
