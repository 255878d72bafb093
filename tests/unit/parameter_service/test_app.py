"""The endpoints: statuses, problem documents, limits, and bodies of every wrong kind."""

import asyncio

import httpx
import pytest

from maskedlark.clock import FixedClock
from maskedlark.parameters import chain
from maskedlark.web import error_responses, pages
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, make
from tests.unit.web.service import NOW, ORIGIN, Service, chained, configuration

FIRST, SECOND = chained(2)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "parameters.db", FixedClock(NOW))
    yield service
    service.store.close()


@pytest.fixture
def http(service):
    with service.http() as http:
        yield http


def problem(answer, status, kind):
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert (found["type"], found["status"]) == (kind if ":" in kind else f"/problems/{kind}", status)
    return found


def test_health(http):
    assert http.get("/health").json() == {"status": "ok"}


def test_publish_and_fetch(http):
    handed = chain.sign(FIRST, DOCUMENT_KEY).encode()
    answers_ = [http.post("/v2/documents", content=handed) for _ in range(2)]
    assert [answer.status_code for answer in answers_] == [201, 200]
    assert answers_[0].content == answers_[1].content
    for path in ("origins/ads.example/documents/latest", "origins/ads.example/documents/1"):
        assert http.get(f"/v2/{path}").content == answers_[0].content
    found = http.get(f"/v2/documents/{FIRST.digest.hex()}")
    assert found.content == answers_[0].content
    assert "immutable" in found.headers["cache-control"]


def test_refusals_are_problems(http):
    publish = lambda handed: http.post("/v2/documents", content=handed.encode())  # noqa: E731
    publish(chain.sign(FIRST, DOCUMENT_KEY))
    problem(publish(chain.sign(SECOND, HELPER_KEYS[0])), 403, "bad-signature")
    problem(publish(chain.sign(make(k=99), DOCUMENT_KEY)), 409, "forked")
    problem(publish(chain.sign(chained(3)[2], DOCUMENT_KEY)), 409, "broken-chain")
    problem(publish(chain.sign(make(origin="evil.example"), DOCUMENT_KEY)), 404, "unknown-origin")
    problem(http.get("/v2/origins/ads.example/documents/7"), 404, "unknown-document")
    problem(http.get("/v2/origins/ads.example/documents/0"), 400, "bad-request")
    problem(http.get("/v2/origins/ADS/documents/latest"), 400, "bad-request")
    problem(http.get("/v2/keys"), 400, "bad-request")
    problem(http.get("/v2/keys", params={"helper": "nobody"}), 404, "unknown-helper")
    problem(http.get("/nothing"), 404, "about:blank")
    problem(http.delete("/v2/documents"), 405, "about:blank")


UNCANONICAL = FIRST.encode().replace(b'"place":7', b'"place":%d' % (1 << 60))
WRONG = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "half a letter": chain.sign(FIRST, DOCUMENT_KEY)
    .encode()
    .replace(b'"document": "', b'"document": "\\ud800'),
    "a number without a canonical form": chain.Signed(
        UNCANONICAL, DOCUMENT_KEY.sign(chain.ORIGIN_LABEL, UNCANONICAL)
    ).encode(),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bodies_are_invalid_documents(http, case):
    problem(http.post("/v2/documents", content=WRONG[case]), 422, "invalid-document")


def test_a_large_body_is_not_read_to_its_end(http, service):
    problem(http.post("/v2/documents", content=bytes(error_responses.MAX_BODY + 1)), 413, "body-too-large")
    problem(
        http.post("/v2/keys", params={"helper": "helper-0"}, content=bytes(2 << 20)), 413, "body-too-large"
    )
    problem(http.post("/v2/documents", content=bytes(error_responses.MAX_BODY)), 422, "invalid-document")


def test_a_long_chain_comes_in_pages(http, service, monkeypatch):
    documents = service.publish_chain(7)
    monkeypatch.setattr(pages, "MAX_PAGE", 3)
    found, after, count = [], 0, 0
    while True:
        answer = http.get(f"/v2/origins/{ORIGIN}/documents", params={"after": after})
        page = pages.decode_page(answer.content)
        found += [each.claimed() for each in page.documents]
        count, after = count + 1, len(found)
        if not page.more:
            break
    assert found == documents
    assert count == 3


def test_a_page_ends_before_it_grows_too_large(service, monkeypatch):
    published = [service.publish(each) for each in chained(4)]
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", len(published[0].body) * 2 + 200)
    assert [len(pages.page(published[:n]).documents) for n in (1, 2, 4)] == [1, 2, 2]
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1)
    assert pages.page(published) == pages.Page((published[0],), True)


def test_keys_are_published_and_fetched_as_they_were_signed(http):
    message, query = configuration(0, 1), {"helper": "helper-0"}
    assert [http.post("/v2/keys", params=query, content=message).status_code for _ in range(2)] == [201, 200]
    assert http.get("/v2/keys", params=query).content == message
    problem(http.post("/v2/keys", params=query, content=configuration(0, 0)), 409, "rolled-back")
    problem(http.post("/v2/keys", params=query, content=configuration(1, 2)), 403, "bad-signature")
    problem(http.post("/v2/keys", params=query, content=b"\x07"), 400, "unsupported-version")


def test_a_mistake_of_ours_says_nothing(http, service, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("the secret is 42")

    monkeypatch.setattr(type(service.store), "reading", broken)
    answer = http.get("/v2/origins/ads.example/documents/latest")
    problem(answer, 500, "about:blank")
    assert "42" not in answer.text + caplog.text
    assert "an unexpected RuntimeError at" in caplog.text


def test_the_endpoints_describe_themselves(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert "application/vnd.maskedlark.keys" in paths["/v2/keys"]["post"]["requestBody"]["content"]


def test_the_client_may_hang_up(service):
    async def endless():
        while True:
            yield bytes(1 << 16)

    async def send():
        transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            return await http.post("/v2/documents", content=endless())

    problem(asyncio.run(send()), 413, "body-too-large")


async def held_back(app, reading, finish, first=b"{"):
    """The status of an upload whose bytes come only when told to, and then it is broken off."""
    statuses: list[tuple[int, bytes | None]] = []
    begun: list[bool] = []

    async def receive():
        if not begun:
            begun.append(True)
            return {"type": "http.request", "body": first, "more_body": True}
        reading.set()
        await finish.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append((message["status"], dict(message["headers"]).get(b"connection")))

    scope = {"type": "http", "method": "POST", "path": "/v2/documents", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return statuses


def test_a_body_that_stops_coming_is_given_up(service, monkeypatch):
    monkeypatch.setattr(error_responses, "BODY_WITHIN_S", 0.01)

    async def silence():
        return await asyncio.wait_for(held_back(service.app, asyncio.Event(), asyncio.Event()), 10)

    assert asyncio.run(silence()) == [(408, b"close")]


def test_bodies_above_what_there_is_room_for_are_sent_away_and_room_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(error_responses, "BODIES", 2)
    service = Service(tmp_path / "parameters.db", FixedClock(NOW))

    async def crowd():
        whole = bytes(error_responses.MAX_BODY)
        finish, reading = asyncio.Event(), [asyncio.Event() for _ in range(2)]
        held = [asyncio.create_task(held_back(service.app, each, finish, whole)) for each in reading]
        for each in reading:
            await each.wait()
        above = await held_back(service.app, asyncio.Event(), finish)
        finish.set()
        return above, [await each for each in held]

    assert asyncio.run(crowd()) == ([(503, b"close")], [[(400, None)]] * 2)
    with service.http() as http:
        for _ in range(3):
            problem(http.post("/v2/documents", content=b"{"), 422, "invalid-document")
    service.store.close()
