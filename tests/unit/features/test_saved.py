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


def edited(edit):
    document = json.loads(ENCODER.to_json())
    columns = {column["name"]: column for column in document["columns"]}
    edit(document, columns)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("edit", "error", "reason"),
    [
        (lambda d, c: d.update(version=2), errors.UnsupportedVersion, "version 2, this release reads 1"),
        (lambda d, c: d.update(version="1"), errors.WrongType, "'version' in the encoder is a whole number"),
        (lambda d, c: d.update(version=True), errors.WrongType, "'version'"),
        (lambda d, c: d.update(format="something"), NotAnEncoder, "no encoder"),
        (lambda d, c: d.update(label="Revenue"), errors.UnknownKey, "label"),
        (lambda d, c: d.pop("columns"), errors.MissingKey, "'columns'"),
        (lambda d, c: d.pop("version"), errors.MissingKey, "'version'"),
        (lambda d, c: d.update(columns={}), errors.WrongType, "a list"),
        (lambda d, c: d.update(columns=[]), errors.WrongLength, "no columns"),
        (lambda d, c: d.update(columns=[3]), errors.WrongType, "column 0 of the encoder is a JSON object"),
        (lambda d, c: d["columns"].append(d["columns"][0]), errors.DuplicateKey, "column twice"),
        (lambda d, c: c["age"].update(kind="embedded"), errors.WrongType, "no kind that this release knows"),
        (
            lambda d, c: c["age"].update(extra=1),
            errors.UnknownKey,
            "column 0 of the encoder has unknown keys",
        ),
        (lambda d, c: c["age"].pop("fill"), errors.MissingKey, "'fill'"),
        (lambda d, c: c["age"].update(fill=256), errors.OutOfRange, "0 to 255"),
        (lambda d, c: c["age"].update(fill=1.0), errors.WrongType, "a whole number"),
        (lambda d, c: c["age"].update(fill=True), errors.WrongType, "a whole number"),
        (lambda d, c: c["age"].update(low="0"), errors.WrongType, "a number"),
        (lambda d, c: c["age"].update(low=False), errors.WrongType, "a number"),
        (lambda d, c: c["age"].update(low=1e9), errors.OutOfRange, "low end above"),
        (lambda d, c: c["age"].update(high=10**400), errors.OutOfRange, "magnitude"),
        (lambda d, c: c["age"].update(high=1e301), errors.OutOfRange, "magnitude"),
        (lambda d, c: c["age"].update(high=float("inf")), errors.OutOfRange, "Infinity"),
        (lambda d, c: c["age"].update(high=float("nan")), errors.OutOfRange, "NaN"),
        (lambda d, c: c["age"].update(indicator=1), errors.WrongType, "true or false"),
        (lambda d, c: c["age"].update(name=None), errors.WrongType, "a text"),
        (lambda d, c: c["city"].update(categories="Oslo"), errors.WrongType, "a list"),
        (lambda d, c: c["city"].update(categories=["Oslo", 3]), errors.WrongType, "an entry"),
        (lambda d, c: c["city"].update(categories=["Oslo"] * 2), errors.DuplicateKey, "twice"),
        (
            lambda d, c: c["city"].update(categories=[str(i) for i in range(5000)]),
            errors.WrongLength,
            "at most",
        ),
        (lambda d, c: c["agent"].update(buckets=0), errors.OutOfRange, "1 to 4096"),
        (lambda d, c: c["agent"].update(salt="s" * 65), errors.WrongLength, "64 bytes"),
        (lambda d, c: c["agent"].update(salt=7), errors.WrongType, "a text"),
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
    with pytest.raises(errors.WrongType, match="JSON object"):
        Encoder.from_json("[]")
    with pytest.raises(errors.DuplicateKey):
        Encoder.from_json(ENCODER.to_json().replace('"version": 1', '"version": 1, "version": 1'))
    with pytest.raises(errors.OutOfRange, match="magnitude"):
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
