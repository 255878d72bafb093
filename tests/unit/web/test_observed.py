import asyncio
import logging
import re
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request

from maskedlark.errors import NotDeclared
from maskedlark.web import error_responses, health, metrics
from tests.unit.web.observing import of, samples
from tests.unit.web.service import AppTransport

SECRET = "planted-77aa"


@pytest.fixture
def app():
    made, router = FastAPI(), APIRouter()
    error_responses.install(made)
    metrics.install(made, "helper")

    @router.post("/datasets/{name}")
    async def take(name: str, request: Request) -> str:
        request.state.origin = "ads.example"
        await request.body()
        return "taken"

    @router.get("/strangers/{name}")
    def answer(name: str) -> str:
        if name == "refused":
            raise NotDeclared("declare it")
        if name == "broken":
            raise ValueError(SECRET)
        return name

    made.include_router(router, prefix="/v2")
    health.install(made, lambda: None)
    return made


def ask(app, method, path, body=b"", headers=None):
    with httpx.Client(transport=AppTransport(app), base_url="http://app.test") as http:
        return http.request(method, path, content=body, headers=headers)


@pytest.fixture
def written(caplog):
    caplog.set_level(logging.INFO, "maskedlark")
    return lambda: [each for each in caplog.records if each.name == "maskedlark.web.metrics"]


def test_a_request_is_one_line_with_its_route_and_not_its_path(app, written):
    ask(app, "POST", f"/v2/datasets/monday?q={SECRET}", b"12345")
    (record,) = written()
    assert (record.getMessage(), record.levelname) == ("request", "INFO")
    found = vars(record)
    assert {name: found[name] for name in ("route", "method", "status", "bytes_in", "bytes_out")} == {
        "route": "/v2/datasets/{name}",
        "method": "POST",
        "status": 200,
        "bytes_in": 5,
        "bytes_out": len('"taken"'),
    }
    assert (found["origin"], found["dataset"], found["reason"]) == ("ads.example", "monday", None)
    assert found["ms"] >= 0
    assert SECRET not in str(found)


def test_what_a_stranger_writes_is_not_kept(app, written):
    ask(app, "GET", f"/v2/strangers/{SECRET}")
    ask(app, "GET", f"/{SECRET}")
    ask(app, SECRET.upper(), "/v2/strangers/x")
    assert [(each.route, each.method, each.status) for each in written()] == [
        ("/v2/strangers/{name}", "GET", 200),
        ("other", "GET", 404),
        ("/v2/strangers/{name}", "other", 405),
    ]
    assert not [each for each in written() if SECRET in str(vars(each)).lower()]
    assert SECRET not in str(samples(app)).lower()


def test_strangers_cannot_add_series(app):
    ask(app, "GET", "/nothing")
    ask(app, "BREW", "/v2/strangers/x")
    before = samples(app).keys()
    for number in range(20):
        ask(app, "GET", f"/nothing/{number}")
        ask(app, f"BREW{number}", f"/v2/strangers/{number}")
    assert samples(app).keys() == before


def test_problems_are_counted_by_their_kind_and_are_the_reason_of_the_line(app, written):
    for name in ("refused", "broken"):
        ask(app, "GET", f"/v2/strangers/{name}")
    ask(app, "GET", "/nothing")
    assert [each.reason for each in written()] == ["not-declared", "status-500", "status-404"]
    assert of(app, "maskedlark_problems_total") == {
        ("not-declared",): 1, ("status-500",): 1, ("status-404",): 1,
    }  # fmt: skip


def test_health_is_counted_and_not_logged_unless_it_is_bad(app, written):
    ask(app, "GET", "/health")
    ask(app, "GET", "/ready")
    assert written() == []
    app.state.draining = True
    ask(app, "GET", "/ready")
    assert [(each.route, each.status, each.reason) for each in written()] == [("/ready", 503, "draining")]
    assert of(app, "maskedlark_requests_total") == {
        ("GET", "/health", "200"): 1,
        ("GET", "/ready", "200"): 1,
        ("GET", "/ready", "503"): 1,
    }


def test_requests_bytes_times_and_signers_are_counted(app):
    for _ in range(3):
        ask(app, "POST", "/v2/datasets/monday", bytes(10))
    route = ("/v2/datasets/{name}",)
    assert of(app, "maskedlark_requests_total") == {("POST", *route, "200"): 3}
    assert of(app, "maskedlark_request_body_bytes_total") == {route: 30}
    assert of(app, "maskedlark_response_body_bytes_total") == {route: 3 * len('"taken"')}
    assert of(app, "maskedlark_request_seconds_count") == {("POST", *route): 3}
    assert of(app, "maskedlark_signed_requests_total") == {("ads.example",): 3}
    assert of(app, "maskedlark_requests_in_flight") == {(): 0}


def test_a_request_that_is_cut_off_is_counted_as_one_without_an_answer(app):
    async def run():
        path = "/v2/datasets/monday"
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        scope |= {
            "query_string": b"",
            "headers": [],
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
        }
        waiting = asyncio.Event()

        async def receive():
            waiting.set()
            await asyncio.Event().wait()

        async def send(message):
            pytest.fail("nothing is answered")

        task = asyncio.create_task(app(scope, receive, send))
        await waiting.wait()
        assert of(app, "maskedlark_requests_in_flight") == {(): 1}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert of(app, "maskedlark_requests_total") == {("POST", "/v2/datasets/{name}", "none"): 1}
    assert of(app, "maskedlark_requests_in_flight") == {(): 0}


OWN = re.compile("[0-9a-f]{16}")
GIVEN = "0123456789abcdef"


@pytest.mark.parametrize("given", [GIVEN, "a-z-0-9-", "a" * 32])
def test_a_signed_request_keeps_its_id(app, written, given):
    answer = ask(app, "POST", "/v2/datasets/monday", headers={"X-Request-Id": given})
    assert [each.request_id for each in written()] == [given] == [answer.headers["x-request-id"]]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["a" * 7],
        ["a" * 33],
        ["A" * 16],
        ["192.0.2.1"],
        ["a" * 16 + "\n"],
        ["a b c d e"],
        [GIVEN] * 2,
    ],
)
def test_what_is_no_id_is_replaced(app, written, given):
    headers = [("X-Request-Id", each) for each in given]
    answers = [ask(app, "POST", "/v2/datasets/monday", headers=headers) for _ in range(2)]
    one, two = (each.request_id for each in written())
    assert one != two
    assert OWN.fullmatch(one)
    assert [one, two] == [each.headers["x-request-id"] for each in answers]


@pytest.mark.parametrize("path", ["/v2/strangers/x", "/v2/strangers/refused", "/nothing"])
def test_a_strangers_id_is_replaced(app, written, path):
    answer = ask(app, "GET", path, headers={"X-Request-Id": GIVEN})
    (record,) = written()
    assert record.request_id == answer.headers["x-request-id"] != GIVEN
    assert OWN.fullmatch(record.request_id)
