import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark import errors
from maskedlark.features import Boolean, Encoder, Hashed, OneHot, Scaled
from maskedlark.features.errors import NotAnEncoder
from tests.unit.features import tables

TABLE = tables.columns()
ENCODER = Encoder.fit(TABLE, {"region": OneHot(), "agent": Hashed(16)})


def test_an_encoder_comes_back_to_the_byte(tmp_path):
    ENCODER.save(tmp_path / "encoder.json")
    loaded = Encoder.load(str(tmp_path / "encoder.json"))
    assert loaded == ENCODER
    assert loaded.to_json() == ENCODER.to_json()
    assert loaded.encode(TABLE).tobytes() == ENCODER.encode(TABLE).tobytes()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e300, 1e300), st.one_of(st.text(max_size=4), st.floats(), st.none(), st.booleans())
        ),
        min_size=2,
        max_size=30,
    ),
    st.text(max_size=3),
)
def test_any_encoder_comes_back_to_the_byte(rows, name):
    table = {f"{name}0": [row[0] for row in rows], f"{name}1": [row[1] for row in rows]}
    table |= {f"{name}2": table[f"{name}1"], f"{name}3": [row[0] > 0 for row in rows]}
    kinds = {
        f"{name}0": Scaled(),
        f"{name}1": OneHot(most=5),
        f"{name}2": Hashed(7, name),
        f"{name}3": Boolean(),
    }
    encoder = Encoder.fit(table, kinds, least=1)
    loaded = Encoder.from_json(encoder.to_json())
    assert loaded == encoder
    assert loaded.encode(table).tobytes() == encoder.encode(table).tobytes()


def test_texts_that_are_no_unicode_are_saved_too():
    name = "a\udcff"
    encoder = Encoder.fit({name: ["x\udcff"] * 30}, {name: OneHot()})
    loaded = Encoder.from_json(encoder.to_json())
    assert loaded == encoder
    assert loaded.names == [f"{name} = x\udcff", f"{name} is other"]


def test_the_file_of_an_earlier_release_is_read_and_written_the_same():
    text = """{
 "format": "maskedlark encoder",
 "version": 1,
 "columns": [
  {
   "kind": "scaled",
   "name": "age",
   "indicator": true,
   "low": 18.0,
   "high": 99.5,
   "fill": 127
  },
  {
   "kind": "one-hot",
   "name": "city",
   "indicator": false,
   "categories": [
    "Oslo",
    "Bergen"
   ]
  },
  {
   "kind": "hashed",
   "name": "agent",
   "indicator": false,
   "buckets": 16,
   "salt": "maskedlark"
  },
  {
   "kind": "boolean",
   "name": "member",
   "indicator": false
  }
 ]
}
"""
    assert Encoder.from_json(text).to_json() == text


def edited(edit):
    document = json.loads(ENCODER.to_json())
    columns = {column["name"]: column for column in document["columns"]}
    edit(document, columns)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("edit", "error", "reason"),
    [
        (lambda d, c: d.update(version=2), errors.UnsupportedVersion, "version 2, this release reads 1"),
        (lambda d, c: d.update(version="1"), NotAnEncoder, "version: "),
        (lambda d, c: d.update(version=True), NotAnEncoder, "version: "),
        (lambda d, c: d.update(version=1.0), NotAnEncoder, "version: "),
        (lambda d, c: d.update(format="something"), NotAnEncoder, "format: .*maskedlark encoder"),
        (lambda d, c: d.update(label="Revenue"), NotAnEncoder, "label: Extra"),
        (lambda d, c: d.pop("columns"), NotAnEncoder, "columns: Field required"),
        (lambda d, c: d.pop("version"), NotAnEncoder, "version: Field required"),
        (lambda d, c: d.update(columns={}), NotAnEncoder, "columns: .* valid tuple"),
        (lambda d, c: d.update(columns=[]), NotAnEncoder, "columns: .* at least 1 item"),
        (lambda d, c: d.update(columns=[3]), NotAnEncoder, "columns.0: .* valid dictionary"),
        (lambda d, c: d["columns"].append(d["columns"][0]), NotAnEncoder, "column is named twice"),
        (lambda d, c: c["age"].update(kind="embedded"), NotAnEncoder, "columns.0: .*'boolean', 'hashed'"),
        (lambda d, c: c["age"].pop("kind"), NotAnEncoder, "columns.0: .*'kind'"),
        (lambda d, c: c["age"].update(extra=1), NotAnEncoder, "columns.0.scaled.extra: Extra"),
        (lambda d, c: c["age"].pop("fill"), NotAnEncoder, "fill: Field required"),
        (lambda d, c: c["age"].update(fill=256), NotAnEncoder, "fill: .* less than or equal to 255"),
        (lambda d, c: c["age"].update(fill=1.0), NotAnEncoder, "fill: .* valid integer"),
        (lambda d, c: c["age"].update(fill=True), NotAnEncoder, "fill: .* valid integer"),
        (lambda d, c: c["age"].update(low="0"), NotAnEncoder, "low: .* valid number"),
        (lambda d, c: c["age"].update(low=False), NotAnEncoder, "low: .* valid number"),
        (lambda d, c: c["age"].update(low=1e9), NotAnEncoder, "ascending"),
        (lambda d, c: c["age"].update(high=10**400), NotAnEncoder, "high: "),
        (lambda d, c: c["age"].update(high=1e301), NotAnEncoder, "magnitude up to 1e"),
        (lambda d, c: c["age"].update(high=float("inf")), NotAnEncoder, "Infinity"),
        (lambda d, c: c["age"].update(high=float("nan")), NotAnEncoder, "NaN"),
        (lambda d, c: c["age"].update(indicator=1), NotAnEncoder, "indicator: .* valid boolean"),
        (lambda d, c: c["age"].update(name=None), NotAnEncoder, "name: .* str"),
        (lambda d, c: c["city"].update(categories="Oslo"), NotAnEncoder, "categories: .* valid tuple"),
        (lambda d, c: c["city"].update(categories=["Oslo", 3]), NotAnEncoder, "categories.1: .* str"),
        (lambda d, c: c["city"].update(categories=["Oslo"] * 2), NotAnEncoder, "category is named twice"),
        (
            lambda d, c: c["city"].update(categories=[str(i) for i in range(5000)]),
            NotAnEncoder,
            "categories: .* at most 4096",
        ),
        (lambda d, c: c["agent"].update(buckets=0), NotAnEncoder, "buckets: .* greater than or equal to 1"),
        (lambda d, c: c["agent"].update(salt="s" * 65), NotAnEncoder, "at most 64 bytes"),
        (lambda d, c: c["agent"].update(salt=7), NotAnEncoder, "salt: .* str"),
    ],
)
def test_each_wrong_file_has_its_error(edit, error, reason):
    with pytest.raises(error, match=reason):
        Encoder.from_json(edited(edit))


@pytest.mark.parametrize("text", ["", "{", "[1]x", "[" * 100_000, "1" * 5000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(NotAnEncoder, match="no JSON"):
        Encoder.from_json(text)


def test_other_json_and_other_files_are_refused(tmp_path):
    with pytest.raises(NotAnEncoder, match="valid dictionary"):
        Encoder.from_json("[]")
    with pytest.raises(NotAnEncoder, match="a key twice"):
        Encoder.from_json(ENCODER.to_json().replace('"version": 1', '"version": 1, "version": 1'))
    with pytest.raises(NotAnEncoder, match="magnitude"):
        Encoder.from_json(edited(lambda d, c: c["age"].update(high=7777)).replace("7777", "1e999"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(NotAnEncoder, match="UTF-8"):
        Encoder.load(tmp_path / "binary")


@settings(deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_is_refused(data):
    text = ENCODER.to_json().rstrip()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(errors.DecodeError):
        Encoder.from_json(text[:end])


def test_its_digest_is_the_files_and_another_encoders_is_another(tmp_path):
    ENCODER.save(tmp_path / "encoder.json")
    data = (tmp_path / "encoder.json").read_bytes()
    assert ENCODER.digest == hashlib.sha256(data).digest() == Encoder.from_json(data.decode()).digest
    assert ENCODER.digest == Encoder.from_json(json.dumps(json.loads(data))).digest
    assert Encoder(ENCODER.columns[::-1]).digest != ENCODER.digest
