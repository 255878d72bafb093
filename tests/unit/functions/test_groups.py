"""Rows as codes: a sequence like any other, small to pickle, and united whatever the dictionaries."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.functions import groups
from maskedlark.functions.function import Table, added
from maskedlark.functions.groups import Groups

entries = st.one_of(st.integers(-3, 3), st.sampled_from(["", "a", "b", "a\0b", "é"]))
listed = st.integers(0, 3).flatmap(
    lambda keys: st.lists(st.tuples(*[entries] * keys), unique=True, max_size=8)
)


@given(listed)
def test_rows_are_those_listed(rows):
    made = Groups.of(rows)
    assert made == rows
    assert rows == [*made] == [made[place] for place in range(len(rows))]
    assert made[1:] == rows[1:]
    assert pickle.loads(pickle.dumps(made)) == rows
    kept = np.arange(len(rows))[::2]
    assert made.select_rows(kept) == rows[::2]
    assert Groups.of(made) is made


@pytest.mark.parametrize("sizes", [(), (3,), (2, 3), (2, 0), (2, 1, 3)])
def test_without_codes_every_combination_is_there(sizes):
    made = Groups(tuple(range(size) for size in sizes))
    wanted = [*np.ndindex(*sizes)]
    assert made == wanted
    assert len(made) == len(wanted)
    assert made.select_rows(np.arange(len(wanted))) == wanted
    assert made.order() is None
    assert made != [*wanted, ()]


@given(rows=listed, other=listed, dense=st.booleans())
def test_united_rows_are_in_their_places(rows, other, dense):
    if rows and other and len(rows[0]) != len(other[0]):
        other = []
    several = [Groups.of(each) for each in (rows, other) if each]
    if not several:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "DENSE", 1 << 20 if dense else 0)
        together, places = groups.united(several)
    every = [*together]
    assert len({*every}) == len(every) >= len({*rows, *other})
    for own, place in zip(several, places, strict=True):
        assert [*own] == (every if place is None else [every[number] for number in place])


def test_texts_travel_as_one_and_come_back_as_the_same_tuple():
    names = tuple(f"campaign {number}" for number in range(1000))
    one, other = (pickle.loads(pickle.dumps(Groups((names,)))) for _ in range(2))
    assert one.entries[0] is other.entries[0]
    assert one.entries[0] == names
    assert len(pickle.dumps(Groups((names,)))) < 1.2 * len("".join(names)) + 1000


def test_adding_does_not_change_what_is_added():
    table = Table([("a",)], np.array([1]), (np.array([[field.P - 1]]),))
    assert added([table, table]).shares[0].tolist() == [[field.P - 2]]
    assert (table.records.tolist(), table.shares[0].tolist()) == ([1], [[field.P - 1]])


def test_rows_of_somebody_elses_function_are_added_in_the_order_of_their_keys():
    one = Table([("b", 1), (7, 2)], np.array([1, 2]), (np.array([[1, 2], [3, 4]]),))
    two = Table([("a", 1), ("b", 1)], np.array([5, 6]), (np.array([[5, 6], [7, field.P - 1]]),))
    table = added([one, two]).ordered().at_least(1)
    assert table.rows == [(7, 2), ("a", 1), ("b", 1)]
    assert table.records.tolist() == [2, 5, 7]
    assert table.shares[0].tolist() == [[3, 4], [5, 6], [8, 1]]
