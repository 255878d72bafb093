"""A table in a CSV file: its first line names the columns; commas, semicolons or tabs are between cells."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from maskedlark.features.column import Column, text
from maskedlark.features.errors import TableDoesNotFit

_SEPARATORS = ",;\t"


def read_csv(path: Path) -> dict[str, list[str]]:
    """Columns by name, from the first line. Errors name the line."""
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableDoesNotFit(f"{path} is no text in UTF-8: save it as CSV in UTF-8") from None
    # Not `splitlines`, which also splits at form feeds and Unicode separators inside cells.
    first = next(io.StringIO(content, newline=""), "")
    separator = max(_SEPARATORS, key=first.count)  # Ties go to the comma, which is first.
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        if fault := next(_header_faults(path, header), None):
            raise TableDoesNotFit(fault)
        rows = [_row(path, reader.line_num, row, len(header)) for row in reader if row]
    except csv.Error as error:
        raise TableDoesNotFit(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise TableDoesNotFit(f"{path} has no rows below its first line, which names the columns")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _header_faults(path: Path, header: list[str]) -> Iterator[str]:
    if not header:
        yield f"{path} is empty: its first line names the columns"
    for place, name in enumerate(header, 1):
        if not name.strip():
            advice = "name it in the first line, or write the CSV without an index"
            yield f"{path}: column {place} has no name: {advice}"
    for name in header:
        if header.count(name) > 1:
            yield f"{path} names column {name!r} twice: rename one of them"


def _row(path: Path, line: int, row: list[str], wanted: int) -> list[str]:
    if len(row) != wanted:
        raise TableDoesNotFit(
            f"{path}, line {line}: {len(row)} cells, and the first line names {wanted} columns"
        )
    return row


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
