"""Uploads: under documents that are asked for when needed, and stored together as if one after the other."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from maskedlark.adserver.config import Limits
from maskedlark.adserver.errors import UndeclaredReport
from maskedlark.adserver.report_store import Outcome
from maskedlark.adserver.trusted_parameters import TrustedParameters
from maskedlark.adserver.uploads import GroupCommit, ReportLayouts, UploadHandler
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadSignature, MaskedLarkError, RolledBack, WrongLength
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import CorruptCache, ServiceAway, StrangeAnswer, UnknownOrigin
from maskedlark.wire.uploads import encode_batch
from tests.unit.adserver.crowd import Held, at_once
from tests.unit.adserver.stored import DOCUMENT, ORIGIN, arrivals, clock, opened
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY, make
from tests.unit.web.service import NOW, AppTransport, Service, away

ROOT = Path(__file__).parents[3]
STORED, DUPLICATE, CONFLICT = Outcome.STORED, Outcome.DUPLICATE, Outcome.CONFLICT
MAX_REPORTS, MAX_BYTES = 100, 1 << 20
NEXT = make(version=2, previous=DOCUMENT.digest.hex(), k=60)


class Asked:
    """The parameter service as an ad server asks it; it can be away, or answer only when it is let."""

    def __init__(self, *documents: Document) -> None:
        self.documents, self.times = [*documents], 0
        self.error: MaskedLarkError | None = None
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self) -> list[Document]:
        self.times += 1
        self.begun.set()
        assert self.free.wait(60)
        if self.error is not None:
            raise self.error
        return self.documents


def under(document, count=1, seed=b"seed", purpose=Purpose.TRAIN):
    made = arrivals(count, seed + document.digest, purpose, document.digest, document=document)
    return [each.data for each in made]


@pytest.fixture
def service():
    return Asked(DOCUMENT)


@pytest.fixture
def accept(tmp_path, service):
    database, reports = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    door = UploadHandler(ORIGIN, reports, clock(), service, Limits())
    yield lambda sent: [each.error or each.outcome.value for each in door.accept(encode_batch(sent))]
    database.close()


@pytest.mark.parametrize("purpose", [Purpose.AGGREGATE, Purpose.TRAIN])
def test_all_reports_of_a_purpose_and_document_have_one_size(accept, purpose):
    [good] = under(DOCUMENT, purpose=purpose)
    assert len(good) == DOCUMENT.layout(purpose).size
    assert accept([good[:-1], good + b"\0", good]) == ["WrongLength", "WrongLength", "stored"]


def test_the_service_is_asked_for_what_is_not_known_once_an_upload(accept, service):
    assert accept(under(DOCUMENT, 3)) == ["stored"] * 3
    assert accept(under(DOCUMENT, 3, b"more")) == ["stored"] * 3
    assert service.times == 1
    assert accept([*under(NEXT, 5), *under(make(k=70), 5)]) == ["UndeclaredReport"] * 10
    assert service.times == 2
    assert accept(under(NEXT)) == ["UndeclaredReport"], "what was not there before may be there now"
    assert service.times == 3
    assert accept([b"\2", *[each.data for each in arrivals(1, origin="other.example")]]) == [
        "Truncated",
        "WrongOrigin",
    ]
    assert service.times == 3, "no document could make these acceptable"


def test_a_report_under_a_document_of_this_moment_is_stored(accept, service):
    assert accept(under(DOCUMENT)) == ["stored"]
    service.documents.append(NEXT)
    assert accept([*under(NEXT, 2), *under(DOCUMENT)]) == ["stored", "stored", "duplicate"]
    assert service.times == 2


def test_a_purpose_that_the_document_does_not_declare_is_refused(accept, service):
    changes: dict[str, Any] = {"models": [], "training": None, "decoys": [], "fake_rate": 0.0}
    declared = make(mechanisms={"sums": {"kind": "laplace", "noise_floor": 1.0}}, **changes)
    service.documents.append(declared)
    untrained = [each.data for each in arrivals(1, b"untrained", parameters=declared.digest)]
    assert accept([*untrained, *under(declared, purpose=Purpose.AGGREGATE)]) == ["UndeclaredReport", "stored"]


@pytest.mark.parametrize(
    "error", [ServiceAway, StrangeAnswer, UnknownOrigin, RolledBack, BadSignature, CorruptCache, WrongLength]
)
def test_nothing_is_refused_for_good_while_the_service_cannot_be_asked(accept, service, error, caplog):
    """Not even when the service says what would be a report's own fault."""
    assert accept(under(DOCUMENT)) == ["stored"]
    service.error = error("what the service did")
    sent = [*under(NEXT, 2), *under(DOCUMENT, 2, b"known")]
    with pytest.raises(ServiceAway, match="try again"):
        accept(sent)
    assert f"{error.__name__}: what the service did" in caplog.text
    assert accept(sent[2:]) == ["stored"] * 2, "known documents need no service, and nothing of before stays"
    service.error = None
    service.documents.append(NEXT)
    assert accept(sent) == ["stored"] * 2 + ["duplicate"] * 2


def test_documents_that_were_seen_before_need_no_service(tmp_path):
    at = FixedClock(NOW)
    service = Service(tmp_path / "parameters.db", at)
    (first,) = service.publish_chain(1)
    transport, pins = AppTransport(service.app), {ORIGIN: DOCUMENT_KEY.verifying}
    key, http = SERVICE_KEY.verifying, httpx.Client(transport=transport)
    for face, unknown in ((service.app, UndeclaredReport), (away, ServiceAway)):
        transport.app = face
        parameters = TrustedParameters("http://parameters.test", key, tmp_path / "cache", at, pins, http=http)
        layouts = ReportLayouts(ORIGIN, partial(parameters.documents, ORIGIN))
        [known], [other] = under(first), under(NEXT)
        assert layouts.find(known, layouts.moment) == first.layout(Purpose.TRAIN)
        with pytest.raises(unknown):
            layouts.find(other, layouts.moment)
    service.store.close()


@pytest.mark.parametrize("error", [None, ServiceAway("away")])
def test_uploads_that_wait_together_ask_once(service, error):
    layouts, [known], [unknown] = ReportLayouts(ORIGIN, service), under(DOCUMENT), under(NEXT)
    assert layouts.find(known, layouts.moment) == DOCUMENT.layout(Purpose.TRAIN)
    service.begun.clear()
    service.free.clear()
    service.error = error

    def hear(arrived):
        with pytest.raises(UndeclaredReport if error is None else ServiceAway):
            layouts.find(unknown, arrived)

    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(hear, layouts.moment)
        assert service.begun.wait(60)
        # These come while it is asked: that answer may be older than their document.
        arrived = layouts.moment
        others = [threads.submit(hear, arrived) for _ in range(8)]
        assert layouts.find(known, arrived) == DOCUMENT.layout(Purpose.TRAIN), "what is known does not wait"
        service.free.set()
        for each in (first, *others):
            each.result(60)
    assert service.times == 1 + 2


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
