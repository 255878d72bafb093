"""Sums by group against a twin that takes one record at a time."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.errors import BadArguments
from maskedlark.functions import groups
from maskedlark.functions.sums import Sums
from tests.twins import grouping as twin
from tests.unit.functions.grouped import DOCUMENT, VALUES, filters, groupings, held, records
from tests.unit.parameters import cases


def passes(where: list[dict[str, Any]], keys: Any) -> bool:
    for each in where:
        entry = keys[each["key"]]
        if "among" in each:
            if entry not in each["among"]:
                return False
        elif not (isinstance(entry, int) and each["min"] <= entry <= each["max"]):
            return False
    return True


@settings(max_examples=300, deadline=None)
@given(
    datasets=st.lists(records, min_size=1, max_size=3),
    where=filters,
    by=groupings,
    values=st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
    k=st.integers(0, 4),
    dense=st.sampled_from([1, 4, 1 << 20]),
)
def test_every_group_is_its_twin(datasets, where, by, values, k, dense):
    question = Sums().ask(DOCUMENT, {"values": values, "by": by, "where": where})
    before, groups.DENSE = groups.DENSE, dense
    try:
        tables = question.share([held(rows) for rows in datasets], k)
    finally:
        groups.DENSE = before
    union = [row for rows in datasets for row in rows]
    places = [VALUES.index(value) for value in values]
    for keys, table in zip(by, tables, strict=True):
        wanted = twin.sums(union, keys, places, lambda keys: passes(where, keys), max(k, 1))
        found = {row: [int(share[i, 0]) for share in table.shares] for i, row in enumerate(table.rows)}
        assert found == wanted
        assert all(share.shape == (len(table.rows), 1) for share in table.shares)


def test_a_text_and_a_number_are_different_keys():
    rows: list[twin.Record] = [
        ({"campaign": "7", "place": 0}, [1, 2, 3]),
        ({"campaign": 7, "place": 0}, [4, 5, 6]),
    ]
    question = Sums().ask(DOCUMENT, {"values": ["count"], "by": [["campaign"]]})
    (table,) = question.share([held(rows)], 1)
    assert table.rows == [(7,), ("7",)]
    only = Sums().ask(DOCUMENT, {"values": ["count"], "where": [{"key": "campaign", "among": ["7"]}]})
    assert only.share([held(rows)], 1)[0].shares[0].tolist() == [[1]]


def test_helpers_whose_entries_came_in_another_order_agree():
    rows: list[twin.Record] = [
        ({"campaign": name, "place": place}, [1, 0, 0])
        for name, place in [("spring", 1), ("autumn", 2), ("spring", 2), ("winter", -1)]
    ]
    question = Sums().ask(DOCUMENT, {"values": ["count"], "by": [["campaign", "place"]]})
    tables = [question.share([held(order)], 1)[0] for order in (rows, rows[::-1])]
    assert tables[0].rows == tables[1].rows == sorted(tables[0].rows)


def test_sensitivities_are_those_of_a_replaced_secret():
    values = [{"name": "profit", "low": -20, "high": 30}, {"name": "euros", "low": 5, "high": 9}]
    changed = cases.make(values=values, models=[], training=None, decoys=[], fake_rate=0.0)
    question = Sums().ask(changed, {"values": ["count", "profit", "euros"], "by": [[], ["campaign"]]})
    found = {column.name: (column.sensitivity.l1, column.sensitivity.l2) for column in question.columns}
    # A fake or unconverted record counts 0: the width of [5, 9] and 0 is 9.
    assert found == {"count": (1, 1.0), "profit": (50, 50.0), "euros": (9, 9.0)}
    assert [column.sensitivity.touched for column in question.columns] == [1] * 6
    assert len(question.columns) == 6, "three values in two groupings are six releases"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"values": ["profit"]}, "'profit' is no declared value; there are count, purchase, visit"),
        ({"values": ["count"], "by": [["month"]]}, "'month' is no declared key; there are campaign, place"),
        ({"values": ["count"], "where": [{"key": "month", "among": [1]}]}, "'month' is no declared key"),
        ({"values": []}, "at least 1 item"),
        ({"values": ["count", "count"]}, "named twice"),
        ({"values": ["count"], "by": [["place", "place"]]}, "named twice"),
        ({"values": ["count"], "by": []}, "at least 1 item"),
        ({"values": ["count"], "where": [{"key": "place"}]}, "either 'among', or 'min' and 'max'"),
        ({"values": ["count"], "where": [{"key": "place", "among": [1], "min": 2}]}, "either 'among'"),
        ({"values": ["count"], "where": [{"key": "place", "min": "a"}]}, "valid integer"),
        ({"values": ["count"], "noise": 1}, "Extra inputs"),
        ({}, "Field required"),
    ],
)
def test_arguments_that_are_wrong_are_named(arguments, says):
    with pytest.raises(BadArguments) as caught:
        Sums().ask(DOCUMENT, json.loads(json.dumps(arguments)))
    assert says in str(caught.value)
