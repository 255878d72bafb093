"""Hillstrom's customers as whole numbers."""

import pytest

from experiments.data import hillstrom, places

COLUMNS = {
    "segment": ["No E-Mail", "Mens E-Mail", "Mens E-Mail"],
    "channel": ["Web", "Phone", "Web"],
    "zip_code": ["Rural", "Urban", "Urban"],
    "history_segment": ["1) $0 - $100"] * 3,
    "visit": ["0", "1", "1"],
    "conversion": ["0", "0", "1"],
    "spend": ["0", "0", "29.99"],
}


def test_spend_is_in_whole_cents():
    """29.99 · 100 is 2998.9999… in floats."""
    found = hillstrom.customers(COLUMNS)
    assert found.spend.tolist() == [0, 0, 2999]
    assert (found.visit.tolist(), found.conversion.tolist(), len(found)) == ([0, 1, 1], [0, 0, 1], 3)


def test_what_a_customer_did_is_no_key():
    assert set(hillstrom.customers(COLUMNS).keys) == set(COLUMNS) - {"visit", "conversion", "spend"}


def test_a_machine_without_the_file_is_told_what_it_needs_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    hillstrom.load.cache_clear()
    with pytest.raises(places.NotHere, match=r"hillstrom\.csv") as told:
        hillstrom.check()
    assert "\n" not in str(told.value)
