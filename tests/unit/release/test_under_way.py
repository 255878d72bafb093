"""What is under way is counted while it runs, also when it fails, and logged every two seconds."""

import logging

import pytest

from maskedlark.release.under_way import UnderWay


def test_what_runs_is_counted_and_said(caplog):
    now = [0.0]
    found = UnderWay(lambda: now[0])
    with caplog.at_level(logging.INFO), found.counted("query", 10) as one, found.counted("query", 5) as two:
        one(1)
        two(3)
        assert found.figures() == {("query", "done"): 4, ("query", "all"): 15}
        assert caplog.messages == []
        now[0] = 2.0
        one(2)
        one(3)
        assert caplog.messages == ["query: 2 of 10 are done"]
    assert found.figures() == {}


def test_what_fails_is_no_longer_under_way():
    found = UnderWay()
    with pytest.raises(ZeroDivisionError), found.counted("freeze", 2):
        raise ZeroDivisionError
    assert found.figures() == {}
