"""A table in a file, whatever its form: CSV, also compressed, or Parquet. Told by its first bytes."""

import bz2
import gzip
import importlib
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from maskedlark.features.csv_file import read_csv
from maskedlark.features.errors import TableDoesNotFit
from maskedlark.features.table import Table

_PARQUET, _ZSTD = b"PAR1", b"\x28\xb5\x2f\xfd"
_COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_EXAMPLE = "campaign,age,bought,euros", "spring,34,1,20"
_DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)


def read_table(path: str | Path) -> Table:
    """The columns of a file by name. Errors name the line."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            begins = file.read(8)
    except FileNotFoundError:
        raise TableDoesNotFit(
            f"{path}: there is no such file. Give the path of a table of yours, a CSV or Parquet file with a "
            f"row for every person. The first line of a CSV names the columns, as in {_EXAMPLE[0]}; a row "
            f"is then {_EXAMPLE[1]}"
        ) from None
    if begins.startswith(_PARQUET):
        return _parquet(path)
    opens = next((each for magic, each in _COMPRESSED.items() if begins.startswith(magic)), None)
    if begins.startswith(_ZSTD):
        opens = _zstd(path)
    if opens is None:
        return read_csv(path)
    try:
        return read_csv(path, cast(BinaryIO, opens(path)))
    except _DAMAGED as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(path, error) from None  # bz2 has no error of its own.


def _damaged(path: Path, error: Exception) -> TableDoesNotFit:
    return TableDoesNotFit(f"{path} cannot be decompressed: {error}; is it whole?")


def _zstd(path: Path) -> Callable[[Path], Any]:
    """The standard library's, which has it from Python 3.14 on."""
    try:
        opens: Callable[[Path], Any] = importlib.import_module("compression.zstd").open
    except ModuleNotFoundError:
        raise TableDoesNotFit(
            f"{path} is compressed with Zstandard, which Python reads from 3.14 on: unpack it (unzstd), or "
            "compress it with gzip"
        ) from None
    return opens


def _parquet(path: Path) -> Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise TableDoesNotFit(
            f"{path} is Parquet, which needs pyarrow: install maskedlark with its extra `parquet`, or save "
            "the table as CSV"
        ) from None
    try:
        return parquet.read_table(path)
    except (OSError, ValueError) as error:  # pyarrow's own are kinds of these.
        raise TableDoesNotFit(f"{path} is no Parquet that can be read: {error}") from None
