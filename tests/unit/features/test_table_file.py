"""Tables as people have them: compressed, in Parquet, damaged."""

import bz2
import gzip
import lzma
import sys
from unittest import mock

import pytest

from maskedlark.features import table as tables
from maskedlark.features.errors import ColumnDoesNotFit, TableDoesNotFit
from maskedlark.features.scaled import number
from maskedlark.features.table_file import read_table

CSV = b"a,b\n1,x\n2,y\n"


def cells(path):
    return {column.name: [*map(str, column.cells())] for column in tables.read(read_table(path))}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_csv_is_read_whatever_its_name(tmp_path, compress):
    path = tmp_path / "people.csv"
    path.write_bytes(compress(CSV))
    assert cells(path) == {"a": ["1", "2"], "b": ["x", "y"]}


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:12] + b"?" * 20 + data[32:]])
def test_a_damaged_file_says_so(tmp_path, compress, damage):
    path = tmp_path / "people.csv.gz"
    path.write_bytes(damage(compress(CSV * 100)))
    with pytest.raises(TableDoesNotFit, match=r"people\.csv\.gz cannot be decompressed"):
        read_table(path)


def test_zstandard_says_what_to_do_where_python_has_none(tmp_path):
    path = tmp_path / "people.csv.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    with (
        mock.patch.dict(sys.modules, {"compression": None, "compression.zstd": None}),
        pytest.raises(TableDoesNotFit, match=r"3\.14 on: unpack it \(unzstd\), or compress it with gzip"),
    ):
        read_table(path)


def test_parquet_is_read_and_its_dates_are_not_numbers(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "people.parquet"
    parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", None]}), path)
    assert cells(path) == {"a": ["1", "2"], "b": ["x", "None"]}
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(TableDoesNotFit, match="no Parquet that can be read"):
        read_table(path)


def test_parquet_without_its_library_says_what_to_install(tmp_path):
    path = tmp_path / "people.parquet"
    path.write_bytes(b"PAR1")
    with (
        mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}),
        pytest.raises(TableDoesNotFit, match="needs pyarrow: install maskedlark with its extra `parquet`"),
    ):
        read_table(path)


def test_errors_name_the_line_of_the_file(tmp_path):
    """Lines from 1, of which the first names the columns; empty ones and those inside cells count."""
    path = tmp_path / "people.csv"
    path.write_text('a,b\n1,x\n\n2,"y\nz"\nthree,w\n')
    (column,) = tables.read(read_table(path), ["a"])
    with pytest.raises(ColumnDoesNotFit, match="column 'a', line 6: no number"):
        column.present(number, "no number")
