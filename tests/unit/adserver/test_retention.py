"""Old reports go, a few at a time; those of a dataset that is being sent stay. On every kind of database."""

import logging
import threading
from dataclasses import replace

import pytest
from sqlalchemy import event

from maskedlark.adserver import dataset_store
from maskedlark.adserver import retention as module
from maskedlark.adserver.dataset_store import Datasets, DatasetState
from maskedlark.adserver.errors import BelowFloor
from maskedlark.adserver.report_store import Outcome, Reports, Selection
from maskedlark.adserver.retention import DAY_S, Retention
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable
from tests.unit.adserver.stored import DIGEST, NOW, arrivals, clock, opened
from tests.unit.web.clocks import Asked, check, confirmed, service
from tests.unit.web.service import away

KEEP = 10 * DAY_S
ALL = Selection(Purpose.TRAIN, DIGEST, 0, 2**40)
OTHER = bytes(32)
PATIENCE_S = 60


class World:
    def __init__(self, url):
        self.clock = clock()
        self.database, self.reports = opened(url, self.clock)
        self.datasets = Datasets(self.database, FixedRandomness(b"openings"))
        self.retention = Retention(self.database, KEEP)

    def receive(self, count, days_ago, purpose=Purpose.TRAIN, parameters=DIGEST):
        self.clock.seconds = NOW - days_ago * DAY_S
        batch = arrivals(count, f"{days_ago} {purpose} {parameters.hex()}".encode(), purpose, parameters)
        assert self.reports.store(batch) == [Outcome.STORED] * count
        self.clock.seconds = NOW
        return batch

    def select(self, name, from_days, to_days):
        span = Selection(Purpose.TRAIN, DIGEST, NOW - from_days * DAY_S, NOW - to_days * DAY_S)
        self.datasets.add(name, span, self.reports.chunks(span, 4))
        return span

    def left(self):
        """Days ago of what is left, with how many."""
        found: dict[int, int] = {}
        for each in self.reports.read(ALL):
            days = (NOW - each.received) // DAY_S
            found[days] = found.get(days, 0) + 1
        return found


@pytest.fixture
def world(database_url, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 7)
    world = World(database_url)
    yield world
    world.database.close()


def test_what_is_old_goes_and_what_is_not_stays(world):
    for days in (30, 12, 10, 9, 0):
        world.receive(20, days)
    world.receive(5, 30, Purpose.AGGREGATE)
    world.receive(5, 30, parameters=OTHER)
    assert world.retention.forget(NOW) == 20 + 20 + 5 + 5
    # What is exactly so old is not older.
    assert world.left() == {10: 20, 9: 20, 0: 20}
    assert world.reports.count() == 60
    assert world.retention.forget(NOW) == 0


def test_a_few_go_in_each_transaction_and_others_have_their_turn_between(world):
    world.receive(30, 12)
    deleted: list[int] = []
    turns: list[int] = []

    @event.listens_for(world.database.engine, "after_cursor_execute")
    def _(connection, cursor, statement, *rest):
        if statement.startswith("DELETE"):
            deleted.append(cursor.rowcount)

    def pause():
        turns.append(len(world.receive(1, len(turns))))
        return True

    assert world.retention.forget(NOW, pause) == 30
    assert deleted == [7, 7, 7, 7, 2, 0]
    assert len(turns) == 5
    assert world.reports.count() == 5


def test_it_stops_when_it_is_told_to_and_goes_on_later(world):
    world.receive(30, 12)
    assert world.retention.forget(NOW, lambda: False) == 7
    assert world.retention.forget(NOW) == 23


def test_a_selected_dataset_keeps_its_reports_until_it_is_frozen(world):
    for days in (30, 25, 20, 15, 12):
        world.receive(10, days)
    selected, later = world.select("first", 26, 19), world.select("later", 13, 5)
    assert world.retention.forget(NOW) == 20
    assert world.left() == {25: 10, 20: 10, 12: 10}
    assert sum(mark.size for mark in world.reports.chunks(selected, 4)) == 20
    world.datasets.freeze("first", bytes(32), 20)
    assert world.retention.forget(NOW) == 20
    assert [each.size for each in world.reports.chunks(later, 4)] == [4, 4, 2]


@pytest.mark.parametrize("end", [DatasetState.ABORTED, DatasetState.LOST])
def test_what_is_taken_back_or_given_up_goes(world, end):
    world.receive(10, 20)
    world.select("first", 21, 19)
    assert world.retention.forget(NOW) == 0
    world.datasets.mark("first", end)
    assert world.retention.forget(NOW) == 10


def test_what_is_known_of_a_dataset_stays(world):
    world.receive(10, 20)
    span = world.select("first", 21, 19)
    world.datasets.freeze("first", bytes(range(32)), 9)
    world.retention.forget(NOW)
    found = world.datasets.get("first")
    assert found is not None
    assert (found.state, found.records, found.reports) == (DatasetState.FROZEN, 9, 10)
    assert (found.selection, len(world.datasets.chunks("first"))) == (span, 3)


def test_no_dataset_is_selected_where_reports_are_being_deleted(world):
    """A selection reads its marks; before it is kept, deleting begins."""
    world.receive(20, 11)
    world.receive(20, 2)
    span = replace(ALL, end=NOW)
    marks = world.reports.chunks(span, 4)
    world.retention.forget(NOW, lambda: False)
    with pytest.raises(BelowFloor):
        world.datasets.add("broken", span, marks)
    assert world.datasets.get("broken") is None
    kept = replace(span, start=world.datasets.floor())
    world.datasets.add("whole", kept, world.reports.chunks(kept, 4))
    assert world.retention.forget(NOW) == 13
    assert sum(mark.size for mark in world.reports.chunks(kept, 4)) == 20


def test_a_dataset_that_was_selected_before_is_whole_though_deleting_began_before_it_ended(world):
    world.receive(20, 11)
    span = world.select("first", 12, 5)
    assert world.retention.forget(NOW) == 0
    assert world.reports.count(span) == 20


def test_a_clock_that_was_ahead_and_is_put_right_does_not_hold_up_datasets(world):
    world.retention.forget(NOW)
    world.retention.forget(NOW + 25 * DAY_S)
    assert world.datasets.floor() == NOW + 15 * DAY_S
    world.retention.forget(NOW)
    assert world.datasets.floor() == NOW - KEEP


def test_another_process_with_another_clock_ends_deleting_at_its_own(world):
    """One deletes by a clock that is ahead; the other puts the floor down; a dataset is selected above it."""
    world.receive(30, 5)
    ahead = Retention(world.database, KEEP)
    selected: list[Selection] = []

    def pause():
        if not selected:
            world.retention.forget(NOW)
            selected.append(world.select("first", 6, 4))
        return True

    gone = ahead.forget(NOW + 20 * DAY_S, pause)
    assert gone == 7
    assert world.reports.count(selected[0]) == 23


@pytest.fixture
def database(sqlite_url):
    database = open_database(sqlite_url)
    yield database
    database.close()


class Watched(Retention):
    """Says when it has been asked so many times."""

    def __init__(self, database, fails=None):
        super().__init__(database, 10 * DAY_S)
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
    with caplog.at_level(logging.INFO), retention.running(at, confirmed(at), 0.01):
        assert retention.twice.wait(PATIENCE_S)
    assert reports.count() == 0
    assert "30 old reports were deleted" in caplog.text
    assert "retention" not in [each.name for each in threading.enumerate()]


@pytest.mark.parametrize(
    ("error", "said"),
    [(StorageUnavailable("try later"), "not deleted: try later"), (ValueError("secret"), "ValueError")],
)
def test_the_next_hour_comes_whatever_it_was(database, caplog, error, said):
    retention = Watched(database, error)
    with retention.running(at := FixedClock(NOW), confirmed(at), 0.01):
        assert retention.twice.wait(PATIENCE_S)
    assert said in caplog.text
    assert "secret" not in caplog.text


def test_a_clock_that_nothing_confirms_deletes_nothing(database, caplog):
    reports = Reports(database, FixedClock(NOW - 20 * DAY_S))
    reports.store(arrivals(3))
    at, asked = FixedClock(NOW), Asked(away)
    with Retention(database, 10 * DAY_S).running(at, check(at, asked), 0.01):
        assert asked.thrice.wait(PATIENCE_S)
    assert (reports.count(), retained_from(database)) == (3, 0)
    assert "nothing confirms the clock (ServiceAway), so nothing is deleted" in caplog.text


def test_a_clock_that_is_wrong_deletes_nothing_until_it_is_put_right(database, caplog):
    reports = Reports(database, FixedClock(NOW - 5 * DAY_S))
    reports.store(arrivals(3))
    ahead, asked = FixedClock(NOW + 29 * DAY_S), Asked(service(FixedClock(NOW)))
    with Retention(database, 10 * DAY_S).running(ahead, check(ahead, asked), 0.01):
        assert asked.thrice.wait(PATIENCE_S)
        assert (reports.count(), retained_from(database)) == (3, 0)
        asked.thrice.clear()
        ahead.seconds = NOW
        assert asked.thrice.wait(PATIENCE_S)
    assert (reports.count(), retained_from(database)) == (3, NOW - 10 * DAY_S)
    assert "the clock says 2024-11-02 00:00 UTC, that of the parameter service 2024-10-04" in caplog.text


def retained_from(database):
    with database.read() as connection:
        return dataset_store.floor(connection)


def test_it_does_not_wait_for_the_next_hour_to_stop(database):
    with Watched(database).running(at := FixedClock(NOW), confirmed(at), 3600):
        pass
