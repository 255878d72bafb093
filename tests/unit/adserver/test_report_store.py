"""What every store of reports must do, whichever database it is in."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from maskedlark.adserver import report_store as module
from maskedlark.adserver.report_store import Arrival, ChunkStart, Outcome, Reports, Selection, StoredReport
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import Database, open_database
from maskedlark.storage.errors import UnknownSchema
from tests.unit.adserver.stored import DIGEST, NOW, arrivals, clock, opened, sealed

ROOT = Path(__file__).parents[3]
ALL = Selection(Purpose.TRAIN, DIGEST, 0, 2**40)
STORED, DUPLICATE, CONFLICT = Outcome.STORED, Outcome.DUPLICATE, Outcome.CONFLICT


@pytest.fixture
def url(database_url):
    return database_url


@pytest.fixture
def at():
    return clock()


@pytest.fixture
def store(url, at):
    database, reports = opened(url, at)
    yield reports
    database.close()


def other_bytes(arrival: Arrival) -> Arrival:
    """Another report under the same id."""
    return arrival._replace(data=sealed(arrival.layout, arrival.head, FixedRandomness(b"other")))


def everything(reports: Reports, selection: Selection = ALL) -> dict[bytes, bytes]:
    return {each.id: each.data for each in reports.read(selection)}


def test_what_is_stored_comes_back_as_it_came(store):
    batch = arrivals(10)
    assert store.store(batch) == [STORED] * 10
    found = {each.id: each for each in store.read(ALL)}
    for layout, head, data in batch:
        assert found[head.id] == StoredReport(
            head.id, layout.origin, layout.purpose, layout.parameters, head.hour, NOW, data
        )
    assert store.count() == store.count(ALL) == 10


def test_an_empty_batch_is_stored_at_once(store):
    assert store.store([]) == []
    assert list(store.read(ALL)) == []
    assert store.count() == 0


def test_a_duplicate_across_batches_counts_once(store):
    batch = arrivals(5)
    store.store(batch[:3])
    assert store.store(batch) == [DUPLICATE] * 3 + [STORED] * 2
    assert store.store(batch[::-1]) == [DUPLICATE] * 5
    assert store.count() == 5


def test_a_duplicate_within_a_batch_counts_once(store):
    one, two = arrivals(2)
    assert store.store([one, two, one, one]) == [STORED, STORED, DUPLICATE, DUPLICATE]
    assert store.count() == 2


def test_other_bytes_under_an_id_are_a_conflict_and_the_first_stays(store):
    one, two, three = arrivals(3)
    assert store.store([one, other_bytes(one), one]) == [STORED, CONFLICT, DUPLICATE]
    assert store.store([other_bytes(one), two]) == [CONFLICT, STORED]
    # The first of the batch is no better than the second when both come too late.
    assert store.store([other_bytes(two), two, three]) == [CONFLICT, DUPLICATE, STORED]
    assert everything(store) == {each.head.id: each.data for each in (one, two, three)}


def test_many_duplicates_are_looked_up_in_bounded_queries(store):
    batch = arrivals(2 * module.LOOKUP + 1)
    store.store(batch[::2])
    outcomes = store.store(batch)
    assert outcomes[::2] == [DUPLICATE] * len(batch[::2])
    assert outcomes[1::2] == [STORED] * len(batch[1::2])
    assert store.count() == len(batch)


def test_a_selection_is_by_purpose_document_and_time_received(store, at):
    kept = arrivals(3, b"kept")
    at.seconds = NOW + 10
    store.store(kept)
    store.store(arrivals(2, b"purpose", purpose=Purpose.AGGREGATE))
    store.store(arrivals(2, b"document", parameters=bytes(32)))
    at.seconds = NOW + 9
    store.store(arrivals(2, b"before"))
    at.seconds = NOW + 11
    store.store(arrivals(2, b"behind"))
    selection = Selection(Purpose.TRAIN, DIGEST, NOW + 10, NOW + 11)
    assert store.count(selection) == 3
    assert everything(store, selection) == {each.head.id: each.data for each in kept}
    assert store.count() == 11


def test_reading_goes_by_time_and_id_and_can_be_taken_up_again(store, at, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 4)
    for second in range(3):
        at.seconds = NOW + second
        store.store(arrivals(7, b"%d" % second))
    found = list(store.read(ALL))
    assert len({each.id for each in found}) == 21
    assert found == sorted(found, key=lambda each: (each.received, each.id))
    for place in (0, 3, 4, 6, 7, 19, 20):
        assert list(store.read(ALL, after=found[place])) == found[place + 1 :]


def spread(store, at, seconds=3, each=7):
    """Reports of several seconds, in the order in which they are read."""
    for second in range(seconds):
        at.seconds = NOW + second
        store.store(arrivals(each, b"%d" % second))
    at.seconds = NOW + seconds
    return list(store.read(ALL))


@pytest.mark.parametrize("every", [1, 4, 7, 20, 21, 22, 1000])
def test_a_selection_is_cut_into_chunks_that_pages_read_again(store, at, every):
    found = spread(store, at)
    marks = store.chunks(ALL, every)
    assert [mark.size for mark in marks] == [
        len(found[start : start + every]) for start in range(0, 21, every)
    ]
    pages = [store.page(ALL, mark, mark.size) for mark in marks]
    assert pages == [found[start : start + every] for start in range(0, 21, every)]


def test_the_marks_of_a_time_that_is_over_never_change(store, at):
    over = Selection(Purpose.TRAIN, DIGEST, NOW, NOW + 3)
    assert store.chunks(over, 4) == []
    spread(store, at)
    store.end(NOW + 3)
    marks = store.chunks(over, 4)
    assert sum(mark.size for mark in marks) == 21
    store.store(arrivals(9, b"later"))
    store.store(arrivals(9, b"other", purpose=Purpose.AGGREGATE))
    assert store.chunks(over, 4) == marks


def test_a_time_that_is_over_stays_so_though_a_clock_steps_back(url, store, at):
    over = Selection(Purpose.TRAIN, DIGEST, NOW, NOW + 3)
    spread(store, at)
    store.end(NOW + 3)
    store.end(NOW + 2)  # An earlier one takes nothing back.
    marks = store.chunks(over, 4)
    pages = [store.page(over, mark, mark.size) for mark in marks]
    at.seconds = NOW + 1
    store.store(arrivals(9, b"late"))
    database, other = opened(url, FixedClock(NOW - 500))  # another process, whose clock is behind
    other.store(arrivals(3, b"slow"))
    database.close()
    assert store.chunks(over, 4) == marks
    assert [store.page(over, mark, mark.size) for mark in marks] == pages
    behind = Selection(Purpose.TRAIN, DIGEST, NOW + 3, NOW + 4)
    assert store.count(behind) == 12
    at.seconds = NOW + 4
    store.store(arrivals(1, b"again"))
    assert store.count(behind) == 12


def test_an_end_waits_for_what_is_being_stored(url, store, at):
    database, other = opened(url, at)
    over = Selection(Purpose.TRAIN, DIGEST, NOW, NOW + 1)
    marked: list[list[ChunkStart]] = []

    def mark():
        store.end(over.end)
        marked.append(store.chunks(over, 10))

    marking = threading.Thread(target=mark)
    with database.write() as connection:
        other._insert(connection, sorted(arrivals(3)))
        at.seconds = NOW + 1  # the second is over, and its last reports are not yet there
        marking.start()
        marking.join(0.2)
    marking.join()
    assert [[mark.size for mark in each] for each in marked] == [[3]]
    database.close()


def test_the_index_answers_alone_or_leads_to_the_reports(url, at):
    database, store = opened(url, at)
    store.store(arrivals(3000))
    store.store(arrivals(3000, b"other", parameters=bytes(32)))
    if database.engine.name == "postgresql":
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE reports"))
    asked: list[tuple[str, Any]] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
    behind = store.page(ALL, None, 256)[-1]
    store.page(ALL, behind, 256)
    assert len(store.chunks(ALL, 1000)) == 3
    chosen = [each for each in asked if "FROM reports" in each[0]]
    marks = [each for each in chosen if "data" not in each[0]]
    assert (len(chosen), len(marks)) == (3, 1)
    alone = "COVERING INDEX" if database.engine.name == "sqlite" else "Index Only Scan"
    for statement, parameters in chosen:
        plan = explained(database, statement, parameters)
        assert "reports_by_selection" in plan, plan
        assert not any(word in plan for word in ("Sort", "TEMP B-TREE", "Seq Scan", "SCAN reports")), plan
        assert (alone in plan) is ((statement, parameters) in marks), plan
    database.close()


def explained(database, statement, parameters):
    how = "EXPLAIN QUERY PLAN" if database.engine.name == "sqlite" else "EXPLAIN"
    with database.read() as connection:
        return "\n".join(str(row) for row in connection.exec_driver_sql(f"{how} {statement}", parameters))


def test_reading_never_holds_more_than_a_page(store, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 4)
    store.store(arrivals(20))
    read: list[StoredReport] = []
    stored = module.StoredReport

    def counting(*row):
        read.append(stored(*row))
        return read[-1]

    monkeypatch.setattr(module, "StoredReport", counting)
    reading = store.read(ALL)
    next(reading)
    assert len(read) == 4
    # Nobody waits for a slow reader.
    assert store.store(arrivals(1, b"more")) == [STORED]
    assert len(list(reading)) >= 19


def test_the_time_is_that_of_the_transaction_not_of_the_call(store, at, monkeypatch):
    began: list[int] = []
    write = Database.write

    def waiting(self):
        at.seconds = NOW + 60  # the turn came a minute after the call
        began.append(at.seconds)
        return write(self)

    monkeypatch.setattr(Database, "write", waiting)
    store.store(arrivals(1))
    assert [each.received for each in store.read(ALL)] == began


def test_uploads_of_one_batch_from_many_threads_count_once(store):
    batch = arrivals(200)
    outcomes: list[list[Outcome]] = []
    start = threading.Barrier(8)

    def send(turn):
        start.wait()
        for at in range(0, 200, 20):
            place = (at + 20 * turn) % 200
            outcomes.append(store.store(batch[place : place + 20]))

    threads = [threading.Thread(target=send, args=(turn,)) for turn in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    flat = [outcome for answer in outcomes for outcome in answer]
    assert (len(flat), flat.count(STORED), flat.count(DUPLICATE)) == (1600, 200, 1400)
    assert everything(store) == {head.id: data for _, head, data in batch}


def test_an_id_that_another_process_wins_in_between_is_looked_up_again(store, monkeypatch):
    batch = arrivals(4)
    store.store(batch[:2])
    looks = []

    def late(connection, ids, lookup=module._lookup):
        looks.append(len(ids))
        return lookup(connection, ids) if len(looks) > 1 else {}

    monkeypatch.setattr(module, "_lookup", late)
    assert store.store(batch) == [DUPLICATE] * 2 + [STORED] * 2
    assert looks == [4, 4]
    assert store.count() == 4


def test_two_openings_share_a_database(url, store):
    other_database, other = opened(url)
    batch = arrivals(4)
    assert store.store(batch[:3]) == [STORED] * 3
    assert other.store(batch) == [DUPLICATE] * 3 + [STORED]
    assert store.count() == 4
    other_database.close()


def test_an_error_within_the_transaction_leaves_nothing(url, store):
    database, other = opened(url)

    def failing(rows):
        with database.write() as connection:
            other._insert(connection, rows)
            raise RuntimeError("after the insert")

    with pytest.raises(RuntimeError, match="after the insert"):
        failing(arrivals(3))
    assert store.count() == 0
    assert other.store(arrivals(3)) == [STORED] * 3
    database.close()


CRASH = """
import os, signal, sys
from sqlalchemy import event
from tests.unit.adserver.stored import arrivals, opened

url, when = sys.argv[1:]
database, reports = opened(url)
reports.store(arrivals(30, b"first"))
print("first", flush=True)
if when == "before commit":
    event.listen(database.engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
reports.store(arrivals(30, b"second"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "left"), [("before commit", 30), ("after commit", 60)])
def test_a_batch_is_there_whole_from_its_commit_on_and_not_at_all_before(url, when, left):
    child = subprocess.run(
        [sys.executable, "-c", CRASH, url, when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, b"first\n"), child.stderr
    database, reports = opened(url)
    expected = {each.head.id: each.data for seed in (b"first", b"second") for each in arrivals(30, seed)}
    found = everything(reports)
    assert len(found) == left
    assert found.items() <= expected.items()
    assert reports.store(arrivals(30, b"second")) == [STORED if left == 30 else DUPLICATE] * 30
    database.close()


def test_a_database_of_another_version_is_refused(url, store, monkeypatch):
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    database = open_database(url)
    with pytest.raises(UnknownSchema, match="version 1, this package knows 2"):
        Reports(database, FixedClock(NOW))
    database.close()
