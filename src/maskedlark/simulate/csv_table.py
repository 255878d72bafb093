"""A CSV file as columns of texts: what they are, numbers or names, is found out later.

Run by `maskedlark simulate`.
"""

import csv
import io
from pathlib import Path

from maskedlark.features.errors import TableDoesNotFit

_SEPARATORS = ",;\t"


def read(path: Path) -> dict[str, list[str]]:
    """Columns by name, as the first line names them. Says which line does not fit."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableDoesNotFit(f"{path} is no text in UTF-8: save it as CSV in UTF-8") from None
    # Not `splitlines`, which also cuts at form feeds and at separators of Unicode, inside cells.
    first = next(io.StringIO(text, newline=""), "")
    separator = max(_SEPARATORS, key=first.count)  # Of equally many the comma, which stands first.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        _check(path, header)
        rows = [_row(path, reader.line_num, row, len(header)) for row in reader if row]
    except csv.Error as error:
        raise TableDoesNotFit(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise TableDoesNotFit(f"{path} has no rows below its first line, which names the columns")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _check(path: Path, header: list[str]) -> None:
    if not header:
        raise TableDoesNotFit(f"{path} is empty: its first line names the columns")
    if unnamed := [place for place, name in enumerate(header, 1) if not name.strip()]:
        raise TableDoesNotFit(
            f"{path}: column {unnamed[0]} has no name: name it in the first line, or write the CSV without "
            "an index"
        )
    if twice := [name for name in header if header.count(name) > 1]:
        raise TableDoesNotFit(f"{path} names column {twice[0]!r} twice: rename one of them")


def _row(path: Path, line: int, row: list[str], wanted: int) -> list[str]:
    if len(row) != wanted:
        raise TableDoesNotFit(
            f"{path}, line {line}: {len(row)} cells, and the first line names {wanted} columns"
        )
    return row
