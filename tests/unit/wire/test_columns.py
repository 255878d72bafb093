from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import Bag, Bytes, Category, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared, WrongLength, WrongType
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import columns
from maskedlark.wire.columns import ABSENT, CELL_BYTES, MAX_KEY_NUMBER
from maskedlark.wire.errors import BadPadding, OutOfRange

RNG = SystemRandomness()
MEASURE = Measure(("campaign", "city"), (Value("euros", 0, 9),))
texts = st.text(max_size=64).filter(lambda text: len(text.encode()) <= 64)


@given(texts | st.integers(-MAX_KEY_NUMBER, MAX_KEY_NUMBER))
def test_every_key_has_one_cell(key):
    cell = columns.encode_key(key)
    assert len(cell) == CELL_BYTES
    assert columns.decode_key(cell) == key
    assert type(columns.decode_key(cell)) is type(key)


@given(st.binary(min_size=CELL_BYTES, max_size=CELL_BYTES) | st.binary(max_size=12))
def test_any_bytes_are_one_key_or_none(data):
    cell = data.ljust(CELL_BYTES, b"\0")
    try:
        key = columns.decode_key(cell)
    except (WrongType, BadPadding, OutOfRange):
        return
    assert columns.encode_key(key) == cell


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        (b"\x41" + b"x" * 64, WrongType),
        (b"\xfe", WrongType),
        (b"\1\xff", WrongType),
        (b"\2\xc3\x28", WrongType),
        (b"\1ab", BadPadding),
        (b"\0a", BadPadding),
        (b"\0" + bytes(63) + b"a", BadPadding),
        (b"\xff" + bytes(8) + b"\1", BadPadding),
        (b"\xff\x80" + bytes(7), OutOfRange),
    ],
)
def test_cells_that_hold_no_key_have_their_own_error(cell, error):
    with pytest.raises(error):
        columns.decode_key(cell.ljust(CELL_BYTES, b"\0"))


def test_keys_that_no_cell_holds_are_refused_whatever_came_before():
    bad: list[tuple[Any, type[Exception]]] = [
        ("x" * 65, WrongLength),
        ("é" * 33, WrongLength),
        (2**63, OutOfRange),
        (-(2**63), OutOfRange),
        (1.5, WrongType),
        (b"x", WrongType),
        (None, WrongType),
        (1.0, WrongType),
        (True, WrongType),
    ]
    columns.encode_key(1)  # equal to 1.0 and True, and cached
    for key, error in bad:
        with pytest.raises(error):
            columns.encode_key(key)
        with pytest.raises(error):
            columns.check_keys({"city": key})


def test_half_of_a_surrogate_pair_is_no_text():
    with pytest.raises(WrongType, match="not UTF-8"):
        columns.check_key("a\ud800")


def test_a_measure_has_a_cell_for_every_declared_key():
    keys: list[list[str | int]] = [[1, -5], ["Rome", ""]]
    rows = columns.aggregate_columns(MEASURE, keys, 2)
    assert rows.shape == (2, columns.width(MEASURE)) == (2, 130)
    assert [columns.decode_keys(row.tobytes()) for row in rows] == [(1, "Rome"), (-5, "")]
    assert columns.aggregate_columns(Measure((), ()), [], 3).shape == (3, 0)
    with pytest.raises(NotDeclared, match="2 keys are declared"):
        columns.aggregate_columns(MEASURE, keys[:1], 2)
    with pytest.raises(NotDeclared, match="differ in length"):
        columns.aggregate_columns(MEASURE, [[1], ["Rome", "Oslo"]], 2)


TYPED = (Category(7), Bytes(2), Bag(9, 3))


def test_typed_columns_are_written_in_their_declared_order():
    values = [np.array([6, 0]), np.array([[1, 255], [0, 7]]), np.array([[8, 0, 3], [ABSENT, 5, ABSENT]])]
    rows = columns.encode_typed(TYPED, values)
    absent = "ffffffff"
    assert rows[0].tobytes().hex() == "00000006" + "01ff" + "00000000" + "00000003" + "00000008"
    assert rows[1].tobytes().hex() == "00000000" + "0007" + "00000005" + absent + absent
    features, (category, bag), valid = columns.typed(TYPED, rows)
    assert features.tolist() == [[1, 255], [0, 7]]
    assert category.tolist() == [[6], [0]]
    assert bag.tolist() == [[0, 3, 8], [5, ABSENT, ABSENT]]
    assert valid.all()


@pytest.mark.parametrize(
    ("place", "given"),
    [
        (0, [7]),
        (0, [-1]),
        (0, [ABSENT]),
        (0, [(1 << 32) + 3]),
        (0, [1.5]),
        (1, [[256, 0]]),
        (1, [[-1, 0]]),
        (1, [[1, 2, 3]]),
        (2, [[1, 2, 9]]),
        (2, [[1, 2, -1]]),
        (2, [[1, 2]]),
    ],
)
def test_what_a_column_does_not_declare_is_not_encoded(place, given):
    values = [np.array([1]), np.array([[1, 2]]), np.array([[1, 2, 3]])]
    columns.encode_typed(TYPED, values)
    values[place] = np.array(given)
    with pytest.raises(NotDeclared):
        columns.encode_typed(TYPED, values)


def test_rows_of_another_width_or_type_are_refused():
    wrong: list[Any] = [np.zeros((1, 17), np.uint8), np.zeros((1, 18), np.int64), np.zeros(18, np.uint8)]
    for rows in wrong:
        with pytest.raises(NotDeclared, match="another width"):
            columns.check_typed(TYPED, rows)
    unsorted = np.zeros((1, 18), np.uint8)
    unsorted[0, 9] = 1
    with pytest.raises(NotDeclared, match="ascending"):
        columns.check_typed(TYPED, unsorted)


@pytest.mark.parametrize("policy", [ALL, Pair(), Sample(3)])
def test_candidates_follow_the_columns_as_places(policy):
    space = LabelSpace.integers(-2, 3)
    model = Model("tag", TYPED, (space, LabelSpace.binary()), policy)
    typed = columns.encode_typed(TYPED, [np.array([1]), np.array([[1, 2]]), np.array([[1, 2, 3]])])
    shown, _ = model.mask([[3], [1]], np.array([True]), RNG)
    rows = columns.train_columns(5, model, typed, shown)
    assert rows.shape == (1, columns.width(model))
    assert rows[0, 0] == 5
    assert (rows[0, 1:19] == typed).all()
    places = [int.from_bytes(rows[0, at : at + 2].tobytes(), "big") for at in range(19, rows.shape[1], 2)]
    again, allowed = columns.candidates_of(model, rows[:, 19:])
    assert allowed.all()
    assert [each.tolist() for each in again] == [each.tolist() for each in shown]
    if policy is ALL:
        assert places == []
    else:
        first = policy.count(space)
        assert [space.values[place] for place in places[:first]] == shown[0][0].tolist()
        assert places[first:] == shown[1][0].tolist()
    with pytest.raises(NotDeclared, match="differ in length"):
        columns.train_columns(5, model, typed, [np.tile(each, (2, 1)) for each in shown])


def test_the_column_hash_is_of_salt_columns_and_purpose():
    digests = {columns.digest(salted, purpose) for salted in (b"a", b"b", b"") for purpose in Purpose}
    assert len(digests) == 6
