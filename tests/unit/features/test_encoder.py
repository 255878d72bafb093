import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.errors import NotDeclared
from maskedlark.features import Boolean, Encoder, Hashed, OneHot, Scaled
from maskedlark.features.errors import ColumnDoesNotFit, TableDoesNotFit, UnknownColumn
from tests.unit.features import tables

TABLE = tables.columns()
KINDS = {"region": OneHot(), "agent": Hashed(16)}
ENCODER = Encoder.fit(TABLE, KINDS)
ENCODED = ENCODER.encode(TABLE)
FORMS = {
    "rows": tables.as_rows,
    "generator": lambda table: iter(tables.as_rows(table)),
    "csv": tables.as_csv,
    "arrays": tables.as_arrays,
    "structured": tables.as_structured,
    "frame": tables.Frame,
}

VALUES = st.sampled_from([None, float("nan"), "", "Oslo", "x", 1, 2, 3.0, -1e9, 0.5, float("inf"), "7", True])
ROW = st.fixed_dictionaries(
    {
        "age": st.sampled_from([None, "", float("nan"), -5, 40, "40", 1e9, float("-inf")]),
        "spent": st.sampled_from([None, 0, 3.25, "99", 1e300]),
        "city": VALUES,
        "agent": VALUES,
        "member": st.sampled_from([True, False, "yes", "No", 1, 0.0, None, ""]),
        "region": VALUES,
    }
)


def test_kinds_are_chosen_and_can_be_declared():
    assert {fitted.name: fitted.kind for fitted in ENCODER.columns} == {
        "age": "scaled",
        "spent": "scaled",
        "city": "one-hot",
        "agent": "hashed",
        "member": "boolean",
        "region": "one-hot",
    }
    assert {fitted.kind for fitted in Encoder.fit({"agent": TABLE["agent"]}).columns} == {"hashed"}


def test_names_and_shape():
    assert ENCODED.shape == (tables.ROWS, len(ENCODER))
    assert ENCODED.dtype == np.uint8
    assert len(ENCODER.names) == len(ENCODER) == len(set(ENCODER.names))
    assert ENCODER.names[:8] == [
        "age",
        "age is missing",
        "spent",
        "city = Oslo",
        "city = São Paulo",
        "city = Roma",
        "city is other",
        "city is missing",
    ]
    assert ENCODER.names[8] == "agent in bucket 0 of 16"


def test_a_row_by_hand():
    encoder = Encoder.fit(
        {"age": [0, 100] * 20, "city": ["Oslo", None] * 20, "ok": ["TRUE", "FALSE"] * 20, "x": ["", 1] * 20},
        {"age": Scaled(low=0, high=51), "x": Boolean(indicator=False)},
    )
    assert encoder.names == ["age", "city = Oslo", "city is other", "city is missing", "ok", "x"]
    rows = [
        {"age": 10, "city": "Oslo", "ok": "true", "x": 1},
        {"age": 99, "city": "Bonn", "ok": False, "x": None},
        {"age": -1, "city": "", "ok": "no", "x": "0"},
    ]
    assert encoder.encode(rows).tolist() == [
        [50, 255, 0, 0, 255, 255],
        [255, 0, 255, 0, 0, 0],
        [0, 0, 0, 255, 0, 0],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_encoder_and_bytes(form):
    assert (ENCODER.encode(FORMS[form](TABLE)) == ENCODED).all()
    assert Encoder.fit(FORMS[form](TABLE), KINDS).encode(TABLE).tobytes() == ENCODED.tobytes()


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8))
def test_one_row_alone_is_encoded_as_among_others(rows):
    together = ENCODER.encode(rows)
    alone = np.concatenate([ENCODER.encode([row]) for row in rows])
    assert together.tobytes() == alone.tobytes()


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(random):
    rows = tables.as_rows(TABLE)
    random.shuffle(rows)
    assert Encoder.fit(rows, KINDS).to_json() == ENCODER.to_json()


def test_other_columns_are_not_looked_at():
    rows = {**TABLE, "label": [object()] * tables.ROWS, "shorter": [1]}
    assert (ENCODER.encode(rows) == ENCODED).all()
    left = Encoder.fit(rows, KINDS, leave_out=["label", "shorter"])
    assert left == ENCODER


def test_no_rows_are_no_bytes():
    assert ENCODER.encode([]).shape == (0, len(ENCODER))
    assert ENCODER.encode({name: [] for name in TABLE}).shape == (0, len(ENCODER))


def test_an_unknown_column_is_refused_and_the_nearest_named():
    with pytest.raises(UnknownColumn, match="no column 'agee'; the nearest is 'age'"):
        Encoder.fit(TABLE, {"agee": Scaled()})
    with pytest.raises(UnknownColumn, match="no column 'Label'; none has a similar name"):
        Encoder.fit(TABLE, leave_out=["Label"])
    with pytest.raises(UnknownColumn, match="no column 'REGIO'; the nearest is 'region'"):
        Encoder.fit(TABLE, leave_out="REGIO")
    renamed = {("Age" if name == "age" else name): cells for name, cells in TABLE.items()}
    for table in (renamed, tables.as_rows(renamed), tables.Frame(renamed | {"age": TABLE["age"]})):
        if isinstance(table, tables.Frame):
            table.columns = list(renamed)
            table.table["Age"] = table.table["age"]
        with pytest.raises(UnknownColumn, match="no column 'age'; the nearest is 'Age'"):
            ENCODER.encode(table)
    with pytest.raises(UnknownColumn, match="none at all"):
        ENCODER.encode({})


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "one column and one row"),
        ([], "one column and one row"),
        ({"a": []}, "one column and one row"),
        ({"a": [1], "b": [1, 2]}, "differ in length: 'a' 1, 'b' 2"),
        ({"a": 3}, "for one row pass"),
        ({"a": "text"}, "for one row pass"),
        ({3: [1]}, "name is a text"),
        ("a,b", "is no table"),
        (7, "is no table"),
        (np.zeros((3, 2)), "is no table"),
        ([[1, 2]], "row 1 is no mapping"),
        ([{"a": 1}, {"b": 1}], "row 2 has other columns than row 1"),
        ([{"a": 1}, {"a": 1, "b": 1}], "row 2 has other columns than row 1"),
        ([{"a": 1}, {"a": 1, None: ["2"]}], "row 2 has more cells"),
        ({"a": np.zeros((2, 2))}, "2 dimensions"),
    ],
)
def test_what_is_no_table_is_refused(table, reason):
    with pytest.raises(TableDoesNotFit, match=reason):
        Encoder.fit(table)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([None, ""], "no value at all"),
        ([[1], [2]], "lists or other objects"),
        ([b"x", b"y"], "row 1: neither text nor number"),
        (np.array(["2024-01-01"], "datetime64[ns]"), "moments"),
        ([1.0] * 39, "has 39 numbers; a range that shows nobody needs 40"),
    ],
)
def test_columns_that_cannot_be_chosen_for_are_refused(cells, reason):
    with pytest.raises(ColumnDoesNotFit, match=reason):
        Encoder.fit({"a": cells})


@pytest.mark.parametrize(
    ("column", "value"), [("age", "old"), ("spent", "1_000"), ("member", 2), ("city", b"")]
)
def test_a_value_that_does_not_fit_is_named_by_its_row_and_not_shown(column, value):
    rows = tables.as_rows(TABLE)[:5]
    rows[3] = {**rows[3], column: value}
    with pytest.raises(ColumnDoesNotFit, match=f"column '{column}', row 4: n") as caught:
        ENCODER.encode(rows)
    assert str(value) not in str(caught.value).split(": ")[0]
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", [Scaled, "scaled", None, 3])
def test_what_is_no_kind_is_refused(kind):
    with pytest.raises(NotDeclared, match="declare a kind"):
        Encoder.fit(TABLE, {"age": kind})


def test_what_is_declared_and_left_out_is_refused():
    with pytest.raises(NotDeclared, match="one of the two"):
        Encoder.fit(TABLE, {"age": Scaled()}, leave_out=["age"])


@pytest.mark.parametrize("least", [0, 1.5, True])
def test_a_floor_is_a_number_of_rows(least):
    with pytest.raises(NotDeclared, match="least"):
        Encoder.fit(TABLE, least=least)


def test_a_small_table_needs_a_smaller_floor():
    assert Encoder.fit({"a": [1, 2], "b": ["x", "y"]}, least=1).encode(
        {"a": [1, 2], "b": ["x", "z"]}
    ).tolist() == [
        [0, 255, 0, 0],
        [255, 0, 0, 255],
    ]
