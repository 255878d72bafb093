from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.features import Encoder, OneHot, csv_file, table
from maskedlark.features.column import Column
from maskedlark.features.csv_file import read_csv, to_csv
from maskedlark.features.errors import TableDoesNotFit


def cells(path):
    return {name: column.cells() for name, column in read_csv(path).items()}


@pytest.mark.parametrize(
    "data",
    [
        b"a,b\n1,x\n2,y\n",
        b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,y",
        b"a;b\n1;x\n2;y\n",
        b"a\tb\n1\tx\n2\ty\n",
        b'a,b\n"1","x"\n2,y\n',
    ],
    ids=["plain", "as spreadsheets save it", "semicolons", "tabs", "quoted"],
)
def test_columns_are_texts_by_name(tmp_path, data):
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    assert cells(path) == {"a": ["1", "2"], "b": ["x", "y"]}


def test_a_cell_may_have_lines_and_separators(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,b\n"1;2","x\ny"\n')
    assert cells(path) == {"a": ["1;2"], "b": ["x\ny"]}


@pytest.mark.parametrize("inside", ["\u2028", "\x85", "\x0c", "\x1d"])
def test_only_a_line_feed_or_carriage_return_ends_a_line(tmp_path, inside):
    path = tmp_path / "table.csv"
    path.write_text(f"a,b\n1{inside}2,x\n", "utf-8")
    assert cells(path) == {"a": [f"1{inside}2"], "b": ["x"]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty: its first line names the columns"),
        (b"a,b\n", "no rows below its first line"),
        (b",a\n0,1\n", "column 1 has no name: name it in the first line, or write the CSV without an index"),
        (b"a, \n0,1\n", "column 2 has no name"),
        (b"a,b,a\n1,2,3\n", "names column 'a' twice"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: 3 cells, and the first line names 2 columns"),
        (b'a,b\n"1,2\n', "line 2: unexpected end of data"),
        (b"a,b\n\xff,2\n", "no text in UTF-8"),
    ],
)
def test_what_is_no_table_says_where(tmp_path, data, said):
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    with pytest.raises(TableDoesNotFit, match=said):
        read_csv(path)


TEXTS = st.text(st.characters(codec="utf-8"))
CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_infinity=False), TEXTS)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1))
def test_what_is_written_is_encoded_as_before(tmp_path_factory, rows):
    """As categories, which depend on every character."""
    path = tmp_path_factory.getbasetemp() / "written.csv"
    table = {name: [*cells, "x"] for name, cells in zip("ab", zip(*rows, strict=True), strict=True)}
    path.write_bytes(to_csv([Column.of(name, cells) for name, cells in table.items()]).encode())
    encoder = Encoder.fit(table, {"a": OneHot(), "b": OneHot()}, least=1)
    assert (encoder.encode(read_csv(path)) == encoder.encode(table)).all()


class Counted(str):
    """A name that counts how often any is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_work_of_reading_grows_as_the_number_of_columns():
    names, left = (list[str](Counted(f"column {number}") for number in range(2000)) for _ in range(2))
    Counted.compared = 0
    assert [*csv_file._header_faults(Path("table.csv"), names)] == []
    assert len(table.read({name: ["1"] for name in names}, leave_out=left[1000:])) == 1000
    assert Counted.compared < 10 * len(names)
