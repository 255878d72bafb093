import logging
import threading

import pytest

from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.retention import DAY_S, Retention
from maskedlark.adserver.upkeep import upkeep
from maskedlark.clock import FixedClock
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable
from tests.unit.adserver.stored import NOW, arrivals

PATIENCE_S = 60


@pytest.fixture
def database(sqlite_url):
    database = open_database(sqlite_url)
    yield database
    database.close()


class Watched(Retention):
    """Says when it has been asked so many times."""

    def __init__(self, database, fails=None):
        super().__init__(database, 10 * DAY_S, 30 * DAY_S)
        self.asked, self.twice, self._fails = 0, threading.Event(), fails

    def forget(self, now, pause=lambda: True):
        self.asked += 1
        try:
            if self._fails is not None and self.asked == 1:
                raise self._fails
            return super().forget(now, pause)
        finally:
            if self.asked == 2:
                self.twice.set()


def test_it_deletes_at_the_start_and_again_and_ends_with_the_block(database, caplog):
    at = FixedClock(NOW - 20 * DAY_S)
    reports = Reports(database, at)
    reports.store(arrivals(30))
    at.seconds = NOW
    retention = Watched(database)
    with caplog.at_level(logging.INFO), upkeep(retention, at, 0.01):
        assert retention.twice.wait(PATIENCE_S)
    assert reports.count() == 0
    assert "30 old reports were deleted" in caplog.text
    assert "upkeep" not in [each.name for each in threading.enumerate()]


@pytest.mark.parametrize(
    ("error", "said"),
    [(StorageUnavailable("try later"), "not deleted: try later"), (ValueError("secret"), "ValueError")],
)
def test_the_next_hour_comes_whatever_it_was(database, caplog, error, said):
    retention = Watched(database, error)
    with upkeep(retention, FixedClock(NOW), 0.01):
        assert retention.twice.wait(PATIENCE_S)
    assert said in caplog.text
    assert "secret" not in caplog.text


def test_a_clock_that_leapt_is_said_in_the_log(database, caplog):
    Retention(database, 10 * DAY_S, 30 * DAY_S).forget(NOW)
    retention = Watched(database)
    with upkeep(retention, FixedClock(NOW + 90 * DAY_S), 0.01):
        assert retention.twice.wait(PATIENCE_S)
    assert "the clock is 90 days ahead" in caplog.text


def test_it_does_not_wait_for_the_next_hour_to_stop(database):
    with upkeep(Watched(database), FixedClock(NOW), 3600):
        pass
