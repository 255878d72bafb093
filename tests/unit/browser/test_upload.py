import logging
import sqlite3
import threading
import time
from email.utils import formatdate

import httpx
import pytest

from maskedlark.adserver import Limits, create_app
from maskedlark.browser.upload import (
    MAX_RETRY_AFTER_S,
    NotAnAddress,
    Progress,
    Settings,
    Uploader,
    retry_after_s,
)
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.web.errors import ServiceAway
from maskedlark.wire import uploads
from maskedlark.wire.uploads import Answer, Verdict
from tests.unit.adserver.cases import URL, AppTransport, Asked
from tests.unit.adserver.stored import DOCUMENT, NOW, ORIGIN, arrivals, clock, data, documents, opened
from tests.unit.browser.outbox import MemoryOutbox

SMALL = Settings(batch_reports=8, first_wait_s=4, max_wait_s=100)
DAY = 24 * 3600


@pytest.fixture
def reports(tmp_path):
    database, table = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    yield table
    database.close()


@pytest.fixture
def at():
    return clock()


@pytest.fixture
def server(reports):
    return AppTransport(create_app(ORIGIN, reports, clock(), documents, Limits(body_bytes=200_000)))


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("httpx").setLevel(logging.WARNING)


def uploader(transport, outbox, at, settings=SMALL, rng=None):
    client = httpx.Client(transport=transport)
    return Uploader(URL, client, at, rng or SystemRandomness(), outbox, settings)


class Faulty(httpx.BaseTransport):
    """A way to the server on which the first requests meet a fault each."""

    def __init__(self, server, *faults):
        self.server = server
        self.faults = list(faults)
        self.bodies: list[bytes] = []

    def handle_request(self, request):
        self.bodies.append(request.read())
        if self.faults:
            return self.faults.pop(0)(self.server, request)
        return self.server.handle_request(request)


def answering(status, body=b"", **headers):
    return lambda _server, _request: httpx.Response(
        status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        stream=Stream(body),
    )


class Stream(httpx.SyncByteStream):
    """A body in chunks; an error among them is raised in its turn."""

    def __init__(self, *chunks):
        self.chunks = chunks

    def __iter__(self):
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def unreachable(_server, _request):
    raise httpx.ConnectError("refused")


def dying_after_commit(server, request):
    assert server.handle_request(request).status_code == 200
    raise httpx.ReadError("gone")


def half_an_answer(server, request):
    body = server.handle_request(request).read()
    broken = httpx.RemoteProtocolError("peer closed connection")
    return httpx.Response(200, stream=Stream(body[: len(body) // 2], broken))


def half_an_answer_that_looks_whole(server, request):
    body = server.handle_request(request).read()
    return httpx.Response(200, stream=Stream(body[: len(body) // 2]))


def one_answer_short(server, request):
    answers = uploads.Answers.model_validate_json(server.handle_request(request).read()).answers
    return httpx.Response(200, stream=Stream(uploads.encode_answers(answers[1:])))


def endless(_server, _request):
    return httpx.Response(200, stream=Stream(*[b" " * 65_536] * 1000))


def test_all_that_waits_is_sent_and_then_forgotten(server, reports, at):
    outbox = MemoryOutbox(data(30))
    assert uploader(server, outbox, at).send_due() == Progress(30, 0)
    assert not outbox.waiting
    assert reports.count() == 30
    assert uploader(server, outbox, at).send_due() == Progress()


def test_a_report_is_acknowledged_only_by_what_is_stored(server, reports, at):
    outbox = MemoryOutbox(data(20))
    stored: list[int] = []
    outbox.on_acknowledge = lambda: stored.append(reports.count() - len(outbox.acknowledged))
    uploader(server, outbox, at).send_due()
    assert stored == [0, 0, 0]


@pytest.mark.parametrize(
    "fault",
    [
        unreachable,
        dying_after_commit,
        half_an_answer,
        half_an_answer_that_looks_whole,
        one_answer_short,
        endless,
        answering(503),
        answering(500, b"Internal Server Error"),
        answering(404),
        answering(400, b"{}"),
        answering(200),
        answering(200, b"<html>welcome to this hotel's network</html>"),
        answering(200, b'{"answers": "all fine"}'),
        answering(202, b'{"answers": []}'),
        answering(302, location="http://elsewhere.example/"),
        answering(302, location="http://xn--a/"),
        answering(302, location="mailto:x"),
        answering(200, b"\x1f\x8b", content_encoding="gzip"),
    ],
)
def test_nothing_is_lost_or_doubled_whatever_comes_back(fault, server, reports, at):
    outbox = MemoryOutbox(data(8))
    way = Faulty(server, fault, fault)
    sending = uploader(way, outbox, at)
    for _ in range(2):
        assert sending.send_due() == Progress()
        assert len(outbox.waiting) == 8
        assert sending.wait_s() > 0
        assert sending.send_due() == Progress()  # too early: nothing is sent
        at.seconds += sending.wait_s()
    assert len(way.bodies) == 2
    assert sending.send_due() == Progress(8, 0)
    assert not outbox.waiting
    assert not outbox.refusals
    assert reports.count() == 8


def test_a_resend_is_byte_identical(server, at):
    sent = data(8)
    way = Faulty(server, dying_after_commit, answering(503), unreachable)
    sending = uploader(way, MemoryOutbox(sent), at)
    while sending.send_due() == Progress():
        at.seconds += sending.wait_s()
    found = [report for body in way.bodies for report in uploads.decode_batch(body, 100, 10_000)]
    assert len(found) > 8
    assert set(found) == set(sent)


def test_batches_are_shuffled_and_bounded(at):
    sent = data(64)
    way = Faulty(httpx.MockTransport(stored_all))
    outbox = MemoryOutbox(sent)
    assert uploader(way, outbox, at, rng=FixedRandomness(b"shuffle")).send_due() == Progress(64, 0)
    batches = [uploads.decode_batch(body, 100, 10_000) for body in way.bodies]
    assert [len(batch) for batch in batches] == [8] * 8
    order = [report for batch in batches for report in batch]
    assert sorted(order) == sorted(sent)
    assert order != sent
    assert all(batch != sorted(batch, key=sent.index) for batch in batches)


def test_batches_are_bounded_in_bytes_and_hold_at_least_one(at):
    sent = data(5)
    size = len(sent[0])
    for most, expected in ((3 * size, [3, 2]), (2 * size - 1, [1] * 5), (1, [1] * 5)):
        way = Faulty(httpx.MockTransport(stored_all))
        uploader(way, MemoryOutbox(sent), at, Settings(batch_bytes=most)).send_due()
        assert [len(uploads.decode_batch(body, 100, 10_000)) for body in way.bodies] == expected


def stored_all(request):
    count = len(uploads.decode_batch(request.read(), 1000, 100_000))
    return httpx.Response(
        200, stream=httpx.ByteStream(uploads.encode_answers([Answer(outcome=Verdict.STORED)] * count))
    )


def test_a_refused_report_is_kept_aside_with_the_reason(server, reports, at):
    foreign = arrivals(2, b"f", origin="other.example")
    outbox = MemoryOutbox([*data(3), *[each.data for each in foreign], b"junk"])
    assert uploader(server, outbox, at).send_due() == Progress(3, 3)
    assert outbox.refusals == {3: "WrongOrigin", 4: "WrongOrigin", 5: "UnsupportedVersion"}
    assert reports.count() == 3


def test_what_an_ad_server_cannot_judge_for_now_is_sent_again_until_it_is_stored(reports, at):
    service = Asked(DOCUMENT)
    service.error = ServiceAway("nobody listens")
    outbox, app = MemoryOutbox(data(12)), create_app(ORIGIN, reports, clock(), service)
    sending = uploader(AppTransport(app), outbox, at)
    assert sending.send_due() == Progress()
    assert (len(outbox.waiting), outbox.refusals) == (12, {})
    assert 2 <= sending.wait_s() <= 4
    service.error = None
    while len(outbox.waiting) > 0:
        time.sleep(0.01)
        at.seconds += sending.wait_s()
        sending.send_due()
    assert reports.count() == 12


def test_reports_that_are_never_judged_hold_up_no_others_and_come_ever_less_often(reports, at):
    server = AppTransport(create_app(ORIGIN, reports, clock(), documents))
    rubbish = [each.data for each in arrivals(3, b"rubbish", parameters=bytes(32))]
    outbox, way = MemoryOutbox([*rubbish, *data(30)]), Faulty(server, *[answering(503)] * 5)
    sending = uploader(way, outbox, at)
    found: list[int] = []
    while len(found) < 40:
        sending.send_due()
        found.append(sending.wait_s())
        at.seconds += found[-1]
    assert list(outbox.waiting.values()) == rubbish
    assert reports.count() == 30
    assert not outbox.refusals
    assert min(found[-5:]) >= SMALL.max_wait_s / 2, "and each attempt is as large as it can be"
    assert len(uploads.decode_batch(way.bodies[-1], 100, 10_000)) == 3


def test_a_batch_that_is_too_large_is_halved_and_a_report_that_is_too_large_is_kept_aside(reports, at):
    sent = data(32)
    app = create_app(ORIGIN, reports, clock(), documents, Limits(body_bytes=5 * len(sent[0])))
    outbox = MemoryOutbox([*sent, bytes(6 * len(sent[0]))])
    sending = uploader(AppTransport(app), outbox, at, Settings())
    assert sending.send_due() == Progress(32, 1)
    assert outbox.refusals == {32: "BodyTooLarge"}
    assert reports.count() == 32


def test_a_report_that_breaks_the_server_does_not_block_the_others(server, reports, at):
    poison, *rest = data(30)

    def breaks(request):
        if poison in uploads.decode_batch(request.read(), 1000, 100_000):
            return httpx.Response(500)
        return server.handle_request(request)

    outbox = MemoryOutbox([poison, *rest])
    sending = uploader(httpx.MockTransport(breaks), outbox, at, rng=FixedRandomness(b"poison"))
    for _ in range(200):
        sending.send_due()
        at.seconds += sending.wait_s()
    assert list(outbox.waiting.values()) == [poison]
    assert reports.count() == 29


def waits(at, seed, *faults):
    way = Faulty(httpx.MockTransport(stored_all), *faults)
    sending = uploader(way, MemoryOutbox(data(1)), at, rng=FixedRandomness(seed))
    found = []
    while sending.send_due() == Progress():
        found.append(sending.wait_s())
        at.seconds += sending.wait_s()
    return found


def test_waits_grow_to_a_bound_and_differ_between_browsers(at):
    several = [waits(at, b"%d" % browser, *[answering(503)] * 40) for browser in range(20)]
    for found in several:
        assert len(found) == 40
        for attempt, wait in enumerate(found):
            longest = min(100, 4 * 2**attempt)
            assert longest / 2 <= wait <= longest
    assert len({tuple(found) for found in several}) == 20


def test_success_ends_the_waiting(server, at):
    way = Faulty(server, *[unreachable] * 6)
    outbox = MemoryOutbox(data(2))
    sending = uploader(way, outbox, at)
    while sending.send_due() == Progress():
        at.seconds += sending.wait_s()
    assert sending.wait_s() == 0
    outbox.waiting[9] = data(3)[2]
    way.faults.append(unreachable)
    sending.send_due()
    assert 0 < sending.wait_s() <= 4


@pytest.mark.parametrize("asked", ["50", formatdate(NOW + 50, usegmt=True)])
def test_retry_after_is_honoured(asked, at):
    for status in (503, 429):
        at.seconds = NOW
        (wait,) = waits(at, b"", answering(status, retry_after=asked))
        assert 50 + 2 <= wait <= 50 + 4


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 0),
        ("0", 0),
        ("7", 7),
        ("-7", 0),
        ("soon", 0),
        ("7.5", 0),
        ("٣", 0),
        ("9" * 5000, 0),
        ("99999999", MAX_RETRY_AFTER_S),
        (formatdate(NOW - 50, usegmt=True), 0),
        (formatdate(NOW + 50, usegmt=True), 50),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
        ("Mon, 99 Foo 2026", 0),
    ],
)
def test_retry_after_in_all_its_forms(header, seconds):
    assert retry_after_s(header, NOW) == seconds


def test_a_clock_that_is_put_back_does_not_stop_uploads(server, reports, at):
    sending = uploader(Faulty(server, unreachable), MemoryOutbox(data(2)), at)
    sending.send_due()
    at.seconds -= 1000 * DAY
    assert sending.send_due() == Progress(2, 0)


def test_nothing_ties_uploads_together(at):
    seen = []

    def curious(request):
        seen.append(request)
        response = stored_all(request)
        response.headers["set-cookie"] = "browser=7; Path=/; Max-Age=99999"
        return response

    uploader(httpx.MockTransport(curious), MemoryOutbox(data(24)), at).send_due()
    assert len(seen) == 3
    for request in seen:
        assert "cookie" not in request.headers
        assert "authorization" not in request.headers
        assert request.headers["user-agent"] == "maskedlark"
    assert len({tuple(sorted(each.headers.items())) for each in seen}) == 1


@pytest.mark.parametrize(
    "url", ["ads.example", "ftp://ads.example", "https://", "http://ads.example:port", "file:///etc/passwd"]
)
def test_an_address_that_is_none_is_refused_at_once(url, at):
    with pytest.raises(NotAnAddress, match="https://"):
        Uploader(url, httpx.Client(), at, SystemRandomness(), MemoryOutbox([]))


def test_the_background_thread_sends_until_it_is_told_to_stop(server, reports, at):
    outbox = MemoryOutbox(data(20))
    done, stop = threading.Event(), threading.Event()
    outbox.on_acknowledge = lambda: done.set() if not outbox.waiting else None
    sending = uploader(server, outbox, at)
    thread = threading.Thread(target=sending.run, args=(stop,))
    thread.start()
    assert done.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert reports.count() == 20


@pytest.mark.parametrize("error", [sqlite3.OperationalError, sqlite3.DatabaseError, sqlite3.InterfaceError])
def test_a_pending_store_that_fails_is_tried_again(server, at, error):
    """The thread outlives it; the test's event counts how often it wanted to wait instead of waiting."""
    outbox = MemoryOutbox(data(2))
    waited: list[float] = []

    class Failing(MemoryOutbox):
        def batch(self, most):
            if not waited:
                raise error("database is locked")
            return outbox.batch(most)

        def acknowledge(self, keys):
            outbox.acknowledge(keys)

    class Impatient(threading.Event):
        def wait(self, timeout=None):
            assert timeout is not None
            waited.append(timeout)
            at.seconds += int(timeout)
            if len(waited) > 1:
                self.set()
            return self.is_set()

    uploader(server, Failing([]), at).run(Impatient())
    assert not outbox.waiting
    assert 2 <= waited[0] <= 4
    assert waited[1] == SMALL.idle_s


def test_failures_are_logged_without_a_byte_of_a_report(server, at, caplog):
    sent = data(3)
    uploader(Faulty(server, answering(500, sent[0])), MemoryOutbox(sent), at).send_due()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "status 500" in record.getMessage()
    assert not any(each.hex()[:16] in caplog.text or repr(each)[:16] in caplog.text for each in sent)
