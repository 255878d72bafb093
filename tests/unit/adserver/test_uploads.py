"""Uploads: under documents that are asked for when needed, and stored together as if one after the other."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from maskedlark.adserver import uploads as module
from maskedlark.adserver.config import Limits
from maskedlark.adserver.report_store import Outcome
from maskedlark.adserver.trusted_parameters import TrustedParameters
from maskedlark.adserver.uploads import GroupCommit, ReportLayouts, UploadHandler
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadSignature, RolledBack, WrongLength
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import CorruptCache, ServiceAway, StrangeAnswer, UnknownOrigin
from maskedlark.wire.report import HEAD_BYTES
from maskedlark.wire.uploads import Verdict, encode_batch
from tests.unit.adserver.cases import Asked
from tests.unit.adserver.crowd import Held, at_once
from tests.unit.adserver.stored import DOCUMENT, HOUR, ORIGIN, arrivals, clock, documents, opened
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY, make
from tests.unit.web import clocks
from tests.unit.web.service import NOW, AppTransport, Service, away

ROOT = Path(__file__).parents[3]
STORED, DUPLICATE, CONFLICT = Outcome.STORED, Outcome.DUPLICATE, Outcome.CONFLICT
MAX_REPORTS, MAX_BYTES = 100, 1 << 20
NEXT = make(version=2, previous=DOCUMENT.digest.hex(), k=60)


def under(document, count=1, seed=b"seed", purpose=Purpose.TRAIN):
    made = arrivals(count, seed + document.digest, purpose, document.digest, document=document)
    return [each.data for each in made]


@pytest.fixture
def service():
    return Asked(DOCUMENT)


@pytest.fixture
def handler(tmp_path, service, monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    database, reports = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    made = UploadHandler(ORIGIN, reports, clock(), service, Limits(report_bytes=5000))
    yield made
    service.free.set()
    made.layouts.close()
    database.close()


@pytest.fixture
def accept(handler, service):
    def accept(sent):
        """The service answers after the upload was answered."""
        service.free.clear()
        found = [each.error or each.outcome.value for each in handler.accept(encode_batch(sent))]
        service.free.set()
        handler.layouts.settle()
        return found

    return accept


@pytest.mark.parametrize("purpose", [Purpose.AGGREGATE, Purpose.TRAIN])
def test_all_reports_of_a_purpose_and_document_have_one_size(accept, purpose):
    [good] = under(DOCUMENT, purpose=purpose)
    assert len(good) == DOCUMENT.layout(purpose).size
    assert accept([good[:-1], good + b"\0", good]) == ["WrongLength", "WrongLength", "stored"]


def test_a_report_above_the_operators_limit_is_refused_alone(accept):
    [good], large = under(DOCUMENT), bytes(5001)
    assert accept([large, good, large[1:]]) == ["WrongLength", "stored", "UnsupportedVersion"]


def test_a_limit_below_what_a_document_declares_is_said_once(service, caplog):
    size = DOCUMENT.layout(Purpose.TRAIN).size
    layouts = ReportLayouts(ORIGIN, service, size - 1)
    layouts._ask()
    assert caplog.text.count(f"reports of {size} bytes are refused") == 1


def test_the_service_is_asked_only_for_what_is_not_known(accept, service):
    assert service.times == 1, "at the start, for documents that were there before"
    assert accept([*under(DOCUMENT, 3), *under(DOCUMENT, 3, b"more")]) == ["stored"] * 6
    assert accept([b"\2", *[each.data for each in arrivals(1, origin="other.example")]]) == [
        "Truncated",
        "WrongOrigin",
    ]
    assert service.times == 1, "no document could make these acceptable"
    assert accept(under(NEXT)) == ["later"]
    assert service.times == 2


def test_a_report_under_a_new_document_is_stored_when_it_comes_again(accept, service):
    sent = [*under(NEXT, 2), *under(DOCUMENT)]
    assert accept(sent) == ["later", "later", "stored"], "what is known does not wait for the others"
    service.documents.append(NEXT)
    assert accept(sent) == ["later", "later", "duplicate"], "the service was asked before it had the document"
    assert accept(sent) == ["stored", "stored", "duplicate"]


def test_a_report_of_no_document_is_refused_when_its_form_or_hour_is_wrong(accept):
    def at(hour):
        return arrivals(1, parameters=bytes(32), hour=hour)[0].data

    oldest = HOUR - Limits().hours_behind
    assert accept([at(HOUR), at(oldest), at(oldest - 1), at(HOUR + 49)]) == ["later"] * 2 + ["WrongHour"] * 2
    end = len(DOCUMENT.layout(Purpose.TRAIN).prefix) + HEAD_BYTES
    assert accept([at(HOUR)[:end], at(HOUR)[: end - 1]]) == ["later", "Truncated"]


@pytest.mark.parametrize("at_service", [None, -3, 100])
def test_no_hour_is_refused_by_a_clock_that_is_not_confirmed(tmp_path, at_service):
    """It is later, and nothing is stored: the browser keeps the report. By a wrong clock nothing is."""
    database, table = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    answers = away if at_service is None else clocks.service(FixedClock(clock().now() + at_service * 86_400))
    ours = clocks.check(clock(), asked := clocks.Asked(answers))
    ours.compare()
    handler = UploadHandler(ORIGIN, table, clock(), documents, Limits(), ours)
    handler.layouts.settle()
    oldest = HOUR - Limits().hours_behind
    hours = HOUR, HOUR + 48, oldest, HOUR + 49, oldest - 1, 0
    sent = [arrivals(1, b"%d" % hour, hour=hour)[0].data for hour in hours]

    def said():
        return [each.error or each.outcome.value for each in handler.accept(encode_batch(sent))]

    taken = 3 if at_service is None else 0
    assert said() == ["stored"] * taken + ["later"] * (6 - taken)
    assert table.count() == taken
    asked.answers = clocks.service(clock())
    ours.compare()
    assert said() == ["duplicate" if taken else "stored"] * 3 + ["WrongHour"] * 3
    handler.layouts.close()
    database.close()


def test_a_purpose_that_the_document_does_not_declare_is_refused(accept, service):
    changes: dict[str, Any] = {"models": [], "training": None, "decoys": [], "fake_rate": 0.0}
    declared = make(mechanisms={"sums": {"kind": "laplace", "noise_floor": 1.0}}, **changes)
    service.documents.append(declared)
    untrained = [each.data for each in arrivals(1, b"untrained", parameters=declared.digest)]
    sent = [*untrained, *under(declared, purpose=Purpose.AGGREGATE)]
    assert accept(sent) == ["later"] * 2
    assert accept(sent) == ["UndeclaredReport", "stored"]


@pytest.mark.parametrize(
    "error",
    [ServiceAway, StrangeAnswer, UnknownOrigin, RolledBack, BadSignature, CorruptCache, WrongLength, OSError],
)
def test_nothing_is_refused_for_good_while_the_service_cannot_be_asked(accept, service, error, caplog):
    """Not even when the service says what would be a report's own fault."""
    service.error = error("what the service did")
    sent = [*under(NEXT, 2), *under(DOCUMENT, 2, b"known")]
    assert accept(sent) == ["later"] * 2 + ["stored"] * 2
    assert f"{error.__name__}: what the service did" in caplog.text
    service.error = None
    service.documents.append(NEXT)
    assert accept(sent) == ["later"] * 2 + ["duplicate"] * 2
    assert accept(sent) == ["stored"] * 2 + ["duplicate"] * 2


def test_documents_that_were_seen_before_need_no_service(tmp_path):
    at = FixedClock(NOW)
    service = Service(tmp_path / "parameters.db", at)
    (first,) = service.publish_chain(1)
    transport, pins = AppTransport(service.app), {ORIGIN: DOCUMENT_KEY.verifying}
    key, http = SERVICE_KEY.verifying, httpx.Client(transport=transport)
    for face in (service.app, away):
        transport.app = face
        parameters = TrustedParameters("http://parameters.test", key, tmp_path / "cache", at, pins, http=http)
        layouts = ReportLayouts(ORIGIN, partial(parameters.documents, ORIGIN))
        [known], [other] = under(first), under(NEXT)
        assert layouts.find(known) == first.layout(Purpose.TRAIN)
        assert layouts.find(other) is None
        layouts.close()
    service.store.close()


def test_however_many_are_unknown_they_are_asked_for_one_after_the_other(handler, accept, service):
    service.begun.clear()
    service.free.clear()
    sent = [arrivals(1, parameters=bytes([i]) * 32)[0].data for i in range(100)]
    for each in sent:
        assert [answer.outcome for answer in handler.accept(encode_batch([each]))] == [Verdict.LATER]
    assert service.begun.wait(60)
    # This one comes while it is asked: that answer may be older than its document.
    assert [answer.outcome for answer in handler.accept(encode_batch(under(NEXT)))] == [Verdict.LATER]
    service.documents.append(NEXT)
    service.free.set()
    handler.layouts.settle()
    assert service.times == 1 + 2
    assert service.most == 1
    assert accept(under(NEXT)) == ["stored"]


def test_between_two_requests_there_is_a_pause(service, monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 3600.0)
    layouts = ReportLayouts(ORIGIN, service)
    for _ in range(3):
        assert layouts.find(under(NEXT)[0]) is None
    layouts.close()
    assert service.times == 1, "and whoever stops does not wait for its end"
    assert layouts._asker is not None
    assert not layouts._asker.is_alive()


@pytest.fixture
def database_and_reports(database_url):
    database, reports = opened(database_url)
    yield database, reports
    database.close()


@pytest.fixture
def held(database_and_reports):
    return Held(database_and_reports[1])


def test_those_who_wait_are_stored_in_one_transaction(held):
    batches = [arrivals(each + 1, b"%d" % each) for each in range(5)]
    heard = at_once(GroupCommit(held, MAX_REPORTS, MAX_BYTES), held, batches)
    assert heard == [[STORED] * len(batch) for batch in batches]
    assert held.groups == [1, 2 + 3 + 4 + 5]
    assert held.count() == 15


def test_one_alone_is_stored_at_once(held):
    held.free.set()
    together = GroupCommit(held, MAX_REPORTS, MAX_BYTES)
    batch = arrivals(3)
    assert together.store(batch) == [STORED] * 3
    assert together.store(batch[::-1]) == [DUPLICATE] * 3
    assert held.groups == [3, 3]


def test_the_first_of_an_id_is_the_stored_one_whoever_sent_it(held):
    one, two, three = arrivals(3)
    other = two._replace(data=arrivals(1, b"other")[0].data)
    heard = at_once(
        GroupCommit(held, MAX_REPORTS, MAX_BYTES), held, [[one], [two, one], [other, three], [three, two]]
    )
    assert heard == [[STORED], [STORED, DUPLICATE], [CONFLICT, STORED], [DUPLICATE, DUPLICATE]]
    assert held.groups == [1, 6]


def test_a_group_is_bounded_in_number(held):
    batches = [arrivals(2, b"%d" % each) for each in range(8)]
    assert at_once(GroupCommit(held, 6, MAX_BYTES), held, batches) == [[STORED] * 2] * 8
    assert held.groups == [2, 6, 6, 2]


def test_a_group_is_bounded_in_bytes_but_one_upload_always_goes(held):
    batches = [arrivals(3, b"%d" % each) for each in range(4)]
    size = sum(len(each.data) for each in batches[0])
    assert at_once(GroupCommit(held, MAX_REPORTS, size - 1), held, batches) == [[STORED] * 3] * 4
    assert held.groups == [3] * 4


def test_a_database_that_is_away_is_told_to_each_as_an_error_of_its_own(database_and_reports, held):
    database, reports = database_and_reports

    def fails(_connection):
        raise OperationalError("COMMIT", None, Exception("disk I/O error"))

    event.listen(database.engine, "commit", fails)
    batches = [arrivals(2, b"%d" % each) for each in range(4)]
    together = GroupCommit(held, MAX_REPORTS, MAX_BYTES)
    heard = at_once(together, held, batches)
    assert [type(each) for each in heard] == [StorageUnavailable] * 4
    assert len({id(each) for each in heard}) == 4
    assert held.groups == [2, 6], "nobody waits for it once more"
    event.remove(database.engine, "commit", fails)
    assert reports.count() == 0
    assert together.store(batches[0]) == [STORED] * 2, "and it goes on when the database is back"


def test_an_upload_that_cannot_be_stored_spoils_no_other(held, caplog):
    """None gets past the door; if one did, the others must not be held up by it for ever."""
    bad = [each._replace(head=each.head._replace(hour=None)) for each in arrivals(1, b"bad")]  # type: ignore[arg-type]
    batches = [arrivals(2, b"%d" % each) for each in range(3)]
    heard = at_once(
        GroupCommit(held, MAX_REPORTS, MAX_BYTES), held, [batches[0], batches[1], bad, batches[2]]
    )
    assert [heard[0], heard[1], heard[3]] == [[STORED] * 2] * 3
    assert isinstance(heard[2], IntegrityError)
    assert held.count() == 6
    assert "3 uploads cannot be stored together" in caplog.text


CRASH = """
import os, signal, sys, threading
from sqlalchemy import event
from maskedlark.adserver.trusted_parameters import TrustedParameters
from maskedlark.adserver.uploads import GroupCommit
from tests.unit.adserver.stored import arrivals, opened

url, commits = sys.argv[1], int(sys.argv[2])
database, reports = opened(url)
together = GroupCommit(reports, 100, 1 << 20)
seen = []

def commit(_connection):
    seen.append(None)
    if len(seen) == commits:
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(database.engine, "commit", commit)

def upload(thread):
    for number in range(1000):
        batch = arrivals(2, b"%d-%d" % (thread, number))
        together.store(batch)
        # One call, so nothing is half said.
        os.write(1, b"".join(each.head.id for each in batch))

for each in range(8):
    threading.Thread(target=upload, args=(each,)).start()
"""


@pytest.mark.parametrize("commits", [1, 20])
def test_a_killed_process_has_what_it_acknowledged(database_url, commits):
    child = subprocess.run(
        [sys.executable, "-c", CRASH, database_url, str(commits)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    said = {child.stdout[at : at + 16] for at in range(0, len(child.stdout), 16)}
    database, reports = opened(database_url)
    assert bool(said) == (commits > 1)
    again = [each for thread in range(8) for number in range(100) for each in _sent(thread, number)]
    known = [each for each in again if each.head.id in said]
    assert len(known) == len(said)
    assert reports.store(known) == [DUPLICATE] * len(known)
    database.close()


def _sent(thread, number):
    return arrivals(2, b"%d-%d" % (thread, number))
