import csv
import io
from datetime import time

import numpy as np
import pandas as pd
import pytest

from maskedlark.features import Encoder, Hashed, OneHot, Scaled
from maskedlark.features.errors import ColumnDoesNotFit, UnknownColumn
from maskedlark.simulate.errors import BadSimulation
from maskedlark.simulate.users import ColumnRoles, Users, read_users

TABLE = {
    "id": [f"u{place}" for place in range(60)],
    "campaign": ["spring", "winter", ""] * 20,
    "place": ["1", "2", "30"] * 20,
    "age": ["20", "30", "40", "35"] * 15,
    "bought": ["yes", "no", "no"] * 20,
    "euros": ["12.6", "0", "900"] * 20,
}


def wanted(keys=(), values=None, label=None, features=None, leave_out=(), **more):
    return ColumnRoles(tuple(keys), values or {}, label, features, tuple(leave_out), **more)


def trained(found: Users) -> tuple[list[str], np.ndarray, list[int]]:
    """The columns that are features, their bytes, and the labels."""
    assert found.encoder is not None
    assert found.features is not None
    assert found.label is not None
    assert found.features.shape == (found.size, len(found.encoder))
    return [column.name for column in found.encoder.columns], found.features, found.label.tolist()


def test_every_column_becomes_what_it_is_wanted_as():
    found = read_users(TABLE, wanted(["campaign", "place"], {"euros": (0, 200)}, "bought"))
    assert found.size == 60
    assert found.keys == {"campaign": ["spring", "winter", ""] * 20, "place": [1, 2, 30] * 20}
    assert found.values["euros"].tolist() == [12.6, 0, 200] * 20
    names, _, label = trained(found)
    assert (names, label) == (["campaign", "place", "age"], [1, 0, 0] * 20), "keys are features too"
    assert found.notes == (
        "euros: 20 values are rounded to whole numbers: up or down at random, so that their mean stays",
        "euros: 20 values are cut to 0 … 200",
    )
    assert found.excluded == {"id": "a different text in every row"}
    assert all(leak.startswith(("campaign tells", "place tells")) for leak in found.leaks)


def test_features_are_those_that_are_named_or_not_left_out():
    left = read_users(TABLE, wanted(label="bought", leave_out=["id", "euros", "campaign"]))
    assert trained(left)[0] == ["place", "age"]
    named = read_users(TABLE, wanted(["campaign"], label="bought", features=("campaign", "age")))
    assert trained(named)[0] == ["campaign", "age"]
    keyless = read_users(TABLE, wanted(["campaign"], label="bought", leave_out=["campaign", "euros"]))
    assert trained(keyless)[0] == ["place", "age"]
    assert keyless.keys["campaign"][:2] == ["spring", "winter"]


@pytest.mark.parametrize("asked", [{"features": ("id", "age")}, {"kinds": {"id": Hashed(16)}}])
def test_a_name_of_each_row_is_a_feature_if_it_is_asked_for(asked):
    found = read_users(TABLE, wanted(label="bought", **asked))
    assert "id" in trained(found)[0]
    assert "id has a different text in every row: if it names people, leave it out" in found.leaks


def test_a_kind_says_how_a_column_becomes_bytes():
    found = read_users(TABLE, wanted(label="bought", features=("age",), kinds={"place": OneHot(2)}))
    assert found.encoder is not None
    assert [column.how for column in found.encoder.columns] == [
        "number from 20 to 40",
        "2 categories, and all others",
    ]


def test_dates_are_left_out_whatever_holds_them():
    days = np.datetime64("2026-01-01") + np.arange(60)
    found = read_users({**TABLE, "day": days, "seen": days.astype(str).tolist()}, wanted(label="bought"))
    assert found.excluded["seen"] == "dates"
    assert found.excluded["day"].startswith("holds moments")
    with pytest.raises(ColumnDoesNotFit, match="'day': holds moments; turn them into numbers"):
        read_users({**TABLE, "day": days}, wanted(label="bought", features=("day",)))


def test_dates_of_pandas_and_arrow_do_not_stop_the_start():
    pa = pytest.importorskip("pyarrow")
    zoned = pd.Series(pd.date_range("2026-01-01", periods=60, tz="Europe/Oslo"))
    times = pa.chunked_array([[time(place % 24) for place in range(60)]])
    table = {**TABLE, "zoned": zoned, "days": [each.date() for each in zoned], "times": times}
    found = read_users(table, wanted(label="bought"))
    assert {found.excluded[name] for name in ("zoned", "days", "times")} == {"dates"}
    with pytest.raises(ColumnDoesNotFit, match="'days', row 1: neither text nor number"):
        read_users(table, wanted(label="bought", features=("days",)))


def test_a_key_that_tells_rows_apart_is_told():
    table = {"person": [f"p{place}" for place in range(60)], "place": ["a", "b"] * 30, "euros": [1, 2] * 30}
    found = read_users(table, ColumnRoles(("person", "place"), {"euros": (0, 9)}, None))
    said = "key person has a different entry in nearly every row: hardly any group of it has k records"
    assert found.notes == (said,)


def test_a_row_without_a_label_is_refused_or_left_out():
    table = {**TABLE, "bought": ["yes", "no", "no"] * 19 + ["", "no", ""]}
    said = r"column 'bought', row 58: no label, as in 2 of 60 rows: fill them in, or leave such rows out"
    with pytest.raises(ColumnDoesNotFit, match=said):
        read_users(table, wanted(["campaign"], {"euros": (0, 200)}, "bought"))
    found = read_users(table, wanted(["campaign"], {"euros": (0, 200)}, "bought", drop_unlabelled=True))
    assert (found.size, len(found.keys["campaign"]), len(found.values["euros"])) == (58, 58, 58)
    assert trained(found)[2] == [1, 0, 0] * 19 + [0]
    assert found.keys["campaign"][-1] == "winter"
    assert found.notes[0] == "bought: 2 rows without a label are left out"
    assert [column.cells()[-1] for column in found.known if column.name == "age"] == ["40"]


def test_an_empty_value_is_said_to_be_0():
    found = read_users({"v": ["1", "", "2"]}, wanted(values={"v": (0, 5)}))
    assert found.values["v"].tolist() == [1, 0, 2]
    assert found.notes == ("v: 1 values are empty, which counts as 0",)


def test_an_encoder_of_before_is_used_as_it_is():
    encoder = Encoder.fit({"age": TABLE["age"]}, {"age": Scaled(0, 100)})
    found = read_users(TABLE, wanted(label="bought"), encoder)
    assert found.encoder is encoder
    assert trained(found)[1][:3, 0].tolist() == [51, 76, 102]


@pytest.mark.parametrize("secret", ["bought", "euros"])
def test_an_encoder_of_before_must_not_hold_a_secret(secret):
    encoder = Encoder.fit({"age": TABLE["age"], secret: TABLE[secret]})
    with pytest.raises(BadSimulation, match=f"the encoder has column '{secret}', which is a secret"):
        read_users(TABLE, wanted(values={"euros": (0, 200)}, label="bought"), encoder)


def test_rows_that_can_be_read_once_are_a_table_too():
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(TABLE)
    writer.writerows(zip(*TABLE.values(), strict=True))
    text.seek(0)
    found = read_users(csv.DictReader(text), wanted(["campaign"], {"euros": (0, 200)}, "bought"))
    assert found.digest == read_users(TABLE, wanted(["campaign"], {"euros": (0, 200)}, "bought")).digest


def test_a_feature_that_tells_the_label_is_named():
    label = [0, 1] * 30
    table = {"age": [20, 20, 30, 30] * 15, "price": [0, 5] * 30, "y": label}
    said = "price tells the label almost alone, and helpers read features: if it is known only afterwards"
    found = read_users(table, wanted(label="y"))
    (leak,) = found.leaks
    assert leak.startswith(said)
    assert found.notes == ()
    assert read_users(table, wanted(label="y", leave_out=["price"])).leaks == ()


def test_another_table_has_another_digest():
    asked = wanted(["campaign"], {"euros": (0, 200)}, "bought")
    other = read_users({**TABLE, "bought": ["no", "yes", "no"] * 20}, asked)
    assert other.digest != read_users(TABLE, asked).digest


@pytest.mark.parametrize("cells", [[1, 0], [True, False], ["1.0", "0.0"], ["Y", "n"], [1.0, 0]])
def test_a_label_is_yes_or_no_in_any_writing(cells):
    found = read_users({"x": [1, 2] * 10, "y": cells * 10}, wanted(label="y"))
    assert trained(found)[2] == [1, 0] * 10


@pytest.mark.parametrize(("low", "high", "cells"), [(-5, 5, [-3, 9]), (2, 5, [4, 1])])
def test_a_value_keeps_to_its_bounds_and_to_nothing(low, high, cells):
    found = read_users({"v": cells}, wanted(values={"v": (low, high)}))
    assert found.values["v"].tolist() == np.clip(cells, min(low, 0), high).tolist()


@pytest.mark.parametrize(
    ("table", "asked", "error", "said"),
    [
        (TABLE, wanted(["campain"], label="bought"), UnknownColumn, "nearest is 'campaign'"),
        (TABLE, wanted(label="bought", leave_out=["agee"]), UnknownColumn, "nearest is 'age'"),
        (TABLE, wanted(["campaign"]), BadSimulation, "a value to add up, or a label to train on"),
        (TABLE, wanted(["bought"], label="bought"), BadSimulation, "'bought' is a key, which helpers read"),
        (TABLE, wanted(label="bought", features=("bought",)), BadSimulation, "'bought' is a feature, which"),
        (
            TABLE,
            wanted(label="bought", features=("age",), leave_out=["id"]),
            BadSimulation,
            "one follows from",
        ),
        (TABLE, wanted(values={"euros": (5, 0)}), BadSimulation, "give bounds from low to high"),
        (TABLE, wanted(label="age"), ColumnDoesNotFit, "column 'age', row 1: neither 0 nor 1"),
        (TABLE, wanted(values={"id": (0, 1)}), ColumnDoesNotFit, "column 'id', row 1: no number"),
        ({"y": ["inf"]}, wanted(values={"y": (0, 1)}), ColumnDoesNotFit, "no number"),
        ({"y": [1, 1], "x": [1, 2]}, wanted(label="y"), ColumnDoesNotFit, "is 1 in every row"),
        ({"y": [1, 0]}, wanted(label="y"), BadSimulation, "no column is left to be a feature"),
        ({"größe": [1]}, wanted(["größe"], label="y"), BadSimulation, "cannot be declared: rename it"),
        ({"count": [1]}, wanted(values={"count": (0, 1)}), BadSimulation, "that is the number of records"),
        ({"key": ["x" * 65], "y": [1]}, wanted(["key"], {"y": (0, 1)}), ColumnDoesNotFit, "row 1: a key has"),
    ],
)
def test_what_does_not_fit_says_what_to_change(table, asked, error, said):
    with pytest.raises(error, match=said):
        read_users(table, asked)
