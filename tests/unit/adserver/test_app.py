import asyncio
import logging
import sqlite3
import time

import httpx
import pytest

from maskedlark.adserver import Limits, create_app, uploads
from maskedlark.randomness import FixedRandomness
from maskedlark.storage import database as database_module
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import health
from maskedlark.web.errors import ServiceAway
from maskedlark.wire.hpke import KEY_ID_BYTES
from maskedlark.wire.report import HEAD_BYTES
from maskedlark.wire.uploads import CONTENT_TYPE, decode_answers, encode_batch
from tests.unit.adserver.cases import URL, Asked, client_of, post, upload
from tests.unit.adserver.stored import (
    DOCUMENT,
    HOUR,
    ORIGIN,
    arrivals,
    clock,
    data,
    documents,
    opened,
    sealed,
)

LIMITS = Limits(uploads=2, body_bytes=20_000, reports=20, report_bytes=2000)


@pytest.fixture
def reports(tmp_path):
    database, table = opened(f"sqlite:///{tmp_path / 'reports.db'}")
    yield table
    database.close()


@pytest.fixture
def client(reports):
    return client_of(create_app(ORIGIN, reports, clock(), documents, LIMITS))


def said(answers):
    return [each.error or each.outcome.value for each in answers]


def test_reports_are_stored_and_answered_in_order(client, reports):
    sent = data(5)
    assert said(upload(client, sent)) == ["stored"] * 5
    more = data(7)
    assert said(upload(client, [*more[::-1], more[0]])) == ["stored"] * 2 + ["duplicate"] * 6
    assert reports.count() == 7


def test_a_bad_report_is_refused_alone_and_by_name(client, reports):
    good, changed = arrivals(2)
    other = sealed(changed.layout, changed.head, FixedRandomness(b"other"))
    foreign = arrivals(1, b"f", origin="other.example")[0].data
    unknown = arrivals(1, b"u", parameters=bytes(32))[0].data
    second = len(good.data) - (good.layout.part_size(1) - HEAD_BYTES)
    key_id = good.data[len(good.layout.prefix) + HEAD_BYTES :][:KEY_ID_BYTES]
    one_helper = good.data[:second]
    twice = one_helper + key_id + good.data[second + KEY_ID_BYTES :]
    sent = {
        good.data: "stored",
        b"\x02": "Truncated",
        b"\x01" + good.data[1:]: "UnsupportedVersion",
        b"\x02\x03" + good.data[2:]: "OutOfRange",
        good.data[:34]: "Truncated",
        good.data[:34] + b"\x00" + good.data[35:]: "WrongLength",
        good.data[:35] + b"\xff" + good.data[36:]: "WrongType",
        good.data[:-1]: "WrongLength",
        good.data + b"\x00": "WrongLength",
        foreign: "WrongOrigin",
        unknown: "later",
        bytes(2001): "WrongLength",
        one_helper: "WrongLength",
        twice: "DuplicateKey",
        changed.data: "stored",
        other: "Conflict",
    }
    assert said(upload(client, [*sent])) == [*sent.values()]
    assert reports.count() == 2
    assert said(upload(client, [foreign, good.data])) == ["WrongOrigin", "duplicate"]
    assert said(upload(client, [b"?"])) == ["UnsupportedVersion"]


@pytest.mark.parametrize(
    ("hour", "answer"),
    [
        (HOUR, "stored"),
        (HOUR + 48, "stored"),
        (HOUR + 49, "WrongHour"),
        (HOUR - LIMITS.hours_behind, "stored"),
        (HOUR - LIMITS.hours_behind - 1, "WrongHour"),
        (0, "WrongHour"),
        ((1 << 32) - 1, "WrongHour"),
    ],
)
def test_an_absurd_hour_is_refused(client, hour, answer):
    assert said(upload(client, [arrivals(1, hour=hour)[0].data])) == [answer]


def test_the_answer_does_not_depend_on_what_is_sealed(tmp_path):
    """Same public parts and sizes, other sealed bytes: the same bytes of answer."""
    answers = set()
    for name in ("one", "two"):
        database, table = opened(f"sqlite:///{tmp_path / name}.db")
        client = client_of(create_app(ORIGIN, table, clock(), documents, LIMITS))
        rng = FixedRandomness(name.encode())
        batch = [sealed(each.layout, each.head, rng) for each in arrivals(5)]
        bad = [sealed(each.layout, each.head, rng) for each in arrivals(1, b"f", origin="other.example")]
        for sent in ([*batch[:3], *bad], batch):
            response = post(client, encode_batch(sent))
            assert len(response.headers.pop("x-request-id")) == 16  # It is random.
            answers.add((sent is batch, response.status_code, response.content, str(response.headers)))
        database.close()
    assert len(answers) == 2


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"", 400, "truncated"),
        (b"\x07", 400, "unsupported-version"),
        (encode_batch(data(2))[:-1], 400, "truncated"),
        (encode_batch([b"x"] * 21), 400, "wrong-length"),
        (b"\x01" + bytes(20_000), 413, "body-too-large"),
    ],
)
def test_a_broken_batch_is_refused_whole(client, reports, body, status, problem):
    response = post(client, body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"/problems/{problem}"
    assert reports.count() == 0


def test_good_reports_in_a_broken_batch_are_not_stored(client, reports):
    assert post(client, encode_batch(data(3)) + b"\x00").status_code == 400
    assert reports.count() == 0


@pytest.mark.parametrize("kind", ["", "application/json", "application/octet-stream", "text/plain"])
def test_another_kind_of_body_is_refused(client, kind):
    response = post(client, encode_batch(data(1)), kind)
    assert (response.status_code, response.json()["type"]) == (415, "/problems/wrong-content-type")


def test_other_paths_and_methods_are_problems_too(client):
    assert client.get("/v2/reports").status_code == 405
    assert client.get("/nothing").status_code == 404
    assert client.get("/docs").status_code == 404


def test_without_its_database_it_is_alive_and_not_ready(client, reports, monkeypatch):
    monkeypatch.setattr(health, "EVERY_S", 0)
    assert client.get("/ready").json() == {"status": "ready"}

    def away():
        raise StorageUnavailable("the database cannot answer; try again later")

    monkeypatch.setattr(reports.database, "write", away)
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable")
    assert client.get("/health").json() == {"status": "ok"}


def test_a_busy_database_acknowledges_nothing_and_says_when_to_come_again(tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0)
    database, table = opened(f"sqlite:///{tmp_path / 'busy.db'}")
    client = client_of(create_app(ORIGIN, table, clock(), documents, LIMITS))
    other = sqlite3.connect(tmp_path / "busy.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    response = post(client, encode_batch(data(3)))
    assert (response.status_code, response.json()["type"]) == (503, "/problems/storage-unavailable")
    assert int(response.headers["retry-after"]) > 0
    other.close()
    assert said(upload(client, data(3))) == ["stored"] * 3
    database.close()


def test_without_the_parameter_service_it_starts_and_asks_again_later(reports, monkeypatch):
    monkeypatch.setattr(uploads, "EVERY_S", 0.0)
    service = Asked(DOCUMENT)
    service.error = ServiceAway("nobody listens")
    client = client_of(create_app(ORIGIN, reports, clock(), service, LIMITS))
    assert client.get("/ready").json() == {"status": "ready"}
    response = post(client, encode_batch(data(3)))
    assert response.json() == {"answers": [{"outcome": "later"}] * 3}
    assert reports.count() == 0
    service.error = None
    while "later" in said(upload(client, data(3))):
        time.sleep(0.01)
    assert reports.count() == 3


def test_strangers_with_unknown_documents_hold_up_nobody(reports):
    """More of them than the pool has threads, while the parameter service does not answer."""
    service = Asked(DOCUMENT)
    app = create_app(ORIGIN, reports, clock(), service)
    assert said(upload(client_of(app), data(1))) == ["stored"]
    service.begun.clear()
    service.free.clear()

    async def attacked():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as client:

            async def send(reports):
                kind = {"content-type": CONTENT_TYPE}
                answer = await client.post("/v2/reports", content=encode_batch(reports), headers=kind)
                return said(decode_answers(answer.content, len(reports)))

            strange = [arrivals(1, parameters=bytes([i]) * 32)[0].data for i in range(50)]
            strangers = [asyncio.create_task(send([each])) for each in strange]
            try:
                async with asyncio.timeout(20):
                    assert await asyncio.to_thread(service.begun.wait, 20)
                    assert await send(data(2)) == ["duplicate", "stored"]
                    assert (await client.get("/ready")).status_code == 200
                    assert await asyncio.gather(*strangers) == [["later"]] * 50
                assert not service.free.is_set(), "all of this while the service was silent"
            finally:
                service.free.set()
                await asyncio.wait(strangers)

    asyncio.run(attacked())
    assert service.times <= 3


def test_when_it_stops_it_asks_for_no_more_documents(reports, monkeypatch):
    monkeypatch.setattr(uploads, "EVERY_S", 3600.0)
    service = Asked(DOCUMENT)
    app = create_app(ORIGIN, reports, clock(), service)

    async def lives():
        async with app.router.lifespan_context(app):
            await asyncio.to_thread(upload, client_of(app), [arrivals(1, parameters=bytes(32))[0].data])

    asyncio.run(lives())
    assert said(upload(client_of(app), [arrivals(1, parameters=bytes(32))[0].data])) == ["later"]
    assert service.times == 1, "the pause was cut short"


def scope_of(content_length=None):
    headers = [(b"content-type", b"application/vnd.maskedlark.reports")]
    if content_length is not None:
        headers.append((b"content-length", str(content_length).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v2/reports",
        "raw_path": b"/v2/reports",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "server": ("ads.example", 80),
        "client": None,
    }


async def speak(app, chunk, content_length=None):
    """An ASGI conversation: the status, and how many chunks the app took. None is a sender gone away."""
    taken = 0
    status = []

    async def receive():
        nonlocal taken
        taken += 1
        body = await chunk(taken)
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": True}

    async def send(message):
        if message["type"] == "http.response.start":
            status.append(message["status"])

    await app(scope_of(content_length), receive, send)
    return status, taken


async def endless(_turn):
    return bytes(1000)


def test_a_body_that_does_not_end_is_read_to_the_limit_and_no_further(reports):
    app = create_app(ORIGIN, reports, clock(), documents, LIMITS)
    assert asyncio.run(speak(app, endless)) == ([413], 21)


def test_a_body_that_promises_too_much_is_not_read_at_all(reports):
    app = create_app(ORIGIN, reports, clock(), documents, LIMITS)
    assert asyncio.run(speak(app, endless, content_length=20_001)) == ([413], 0)


def test_a_sender_that_goes_away_stores_nothing(reports):
    app = create_app(ORIGIN, reports, clock(), documents, LIMITS)

    async def leaving(turn):
        return encode_batch(data(3)) if turn == 1 else None  # whole, but it did not say so

    assert asyncio.run(speak(app, leaving)) == ([400], 2)
    assert reports.count() == 0


def test_a_body_that_stops_coming_is_given_up(reports):
    app = create_app(ORIGIN, reports, clock(), documents, LIMITS.model_copy(update={"body_within_s": 0.01}))

    async def silent(turn):
        return b"\x01" if turn == 1 else await asyncio.Event().wait()

    assert asyncio.run(speak(app, silent)) == ([408], 2)
    assert reports.count() == 0


def test_uploads_above_what_there_is_room_for_are_sent_away_and_room_comes_back(reports):
    app = create_app(ORIGIN, reports, clock(), documents, LIMITS)

    async def crowd():
        reading, finish = asyncio.Semaphore(0), asyncio.Event()

        async def holding(turn):
            if turn > 1:
                reading.release()
                await finish.wait()
            return bytes(LIMITS.body_bytes) if turn == 1 else None

        held = [asyncio.create_task(speak(app, holding)) for _ in range(LIMITS.uploads)]
        for _ in held:
            await reading.acquire()
        above = await speak(app, endless)
        finish.set()
        return above, [await each for each in held], await speak(app, endless)

    above, held, behind = asyncio.run(crowd())
    assert above == ([503], 1)
    assert held == [([400], 2)] * LIMITS.uploads
    assert behind == ([413], 21)


def test_a_browsers_id_is_neither_kept_nor_answered(client, caplog):
    caplog.set_level(logging.INFO, "maskedlark")
    headers = {"content-type": CONTENT_TYPE, "x-request-id": "browser-7-of-ours"}
    answers = [client.post("/v2/reports", content=encode_batch(data(3)), headers=headers) for _ in range(2)]
    written = [each.request_id for each in caplog.records if each.getMessage() == "request"]
    assert written == [each.headers["x-request-id"] for each in answers]
    assert len({*written, headers["x-request-id"]}) == 3
    assert headers["x-request-id"] not in str([vars(each) for each in caplog.records])
