"""A table in a CSV file: its first line names the columns; commas, semicolons or tabs are between cells."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from maskedlark.features.column import Column, text
from maskedlark.features.errors import TableDoesNotFit

_SEPARATORS = ",;\t"
_BLOCK = 4096
"""Rows held as rows; all others are held as columns, each text once."""


class Row(NamedTuple):
    """A row, and the line that it ends in."""

    line: int
    cells: list[str]


def read_csv(path: str | Path, file: BinaryIO | None = None) -> dict[str, Column]:
    """Columns by name, from the first line. Errors name the line. `file`: its content, decompressed."""
    path = Path(path)
    with file or path.open("rb") as opened:
        lines = io.TextIOWrapper(opened, "utf-8-sig", newline="")
        try:
            return _read(path, lines)
        except UnicodeDecodeError:
            raise TableDoesNotFit(f"{path} is no text in UTF-8: save it as CSV in UTF-8") from None


def _read(path: Path, lines: Iterator[str]) -> dict[str, Column]:
    first = next(lines, "")
    separator = max(_SEPARATORS, key=first.count)  # Ties go to the comma, which is first.
    reader = csv.reader(chain([first], lines), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        if fault := next(_header_faults(path, header), None):
            raise TableDoesNotFit(fault)
        rows = (_row(path, reader.line_num, row, len(header)) for row in reader if row)
        return _columns(path, header, rows)
    except csv.Error as error:
        raise TableDoesNotFit(f"{path}, line {reader.line_num}: {error}") from None


def _columns(path: Path, header: Sequence[str], rows: Iterator[Row]) -> dict[str, Column]:
    # A missing text gets the next number: all of this loops in C.
    distinct: list[defaultdict[str, int]] = [defaultdict(count().__next__) for _ in header]
    places: list[list[np.ndarray[tuple[int], np.dtype[np.intp]]]] = [[] for _ in header]
    lines: list[int] = []
    while block := list(islice(rows, _BLOCK)):
        lines += [row.line for row in block]
        for column, cells in enumerate(zip(*(row.cells for row in block), strict=True)):
            places[column].append(np.array([*map(distinct[column].__getitem__, cells)], np.intp))
    if not lines:
        raise TableDoesNotFit(f"{path} has no rows below its first line, which names the columns")
    read = zip(header, distinct, places, strict=True)
    return {name: Column(name, [*texts], np.concatenate(indices), lines) for name, texts, indices in read}


def _header_faults(path: Path, header: list[str]) -> Iterator[str]:
    if not header:
        yield f"{path} is empty: its first line names the columns"
    for place, name in enumerate(header, 1):
        if not name.strip():
            advice = "name it in the first line, or write the CSV without an index"
            yield f"{path}: column {place} has no name: {advice}"
    for name, times in Counter(header).items():
        if times > 1:
            yield f"{path} names column {name!r} twice: rename one of them"


def _row(path: Path, line: int, row: list[str], wanted: int) -> Row:
    if len(row) != wanted:
        raise TableDoesNotFit(
            f"{path}, line {line}: {len(row)} cells, and the first line names {wanted} columns"
        )
    return Row(line, row)


def to_csv(columns: Sequence[Column]) -> str:
    """Columns as a CSV that reads as the same values, in texts; what is missing is an empty cell."""
    file, cells = io.StringIO(newline=""), []
    for column in columns:
        missing = column.absent.tolist()
        texts = ["" if gone else text(value) for value, gone in zip(column.values, missing, strict=True)]
        cells.append([texts[place] for place in column.places.tolist()])
    writer = csv.writer(file)
    writer.writerow(column.name for column in columns)
    writer.writerows(zip(*cells, strict=True))
    return file.getvalue()
