"""Admission at a helper: nothing of a body is read before it is known who speaks, and nobody has all room."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from fastapi import FastAPI, Request

from maskedlark.helper.admission import RequestAdmission
from maskedlark.helper.config import Limits
from maskedlark.web import error_responses
from maskedlark.web.errors import (
    BodyTooLarge,
    RequestRefused,
    TooManyUploads,
    UnknownOrigin,
    WrongContentType,
    WrongDigest,
)
from tests.unit.web.clocks import unconfirmed
from tests.unit.web.signing import BODY, NOW, OTHER_KEY, OTHER_SIGNATURE, VERIFIER, changed, signed

TYPE = "application/json"
ADMISSION = RequestAdmission(VERIFIER, Limits(), unconfirmed())


async def taken(request, admission=ADMISSION):
    async with admission.body(request, TYPE, len(BODY)) as found:
        return found


def scope(headers, **changes):
    """As uvicorn makes it."""
    parts = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v2/a/b",
        "raw_path": b"/v2/a%2Fb",
        "query_string": b"x=1",
        "root_path": "",
        "headers": headers,
        "server": ("helper.example", 80),
        "client": None,
        "state": {},
    }
    return parts | changes


async def never():
    raise AssertionError("the body was read before the request was admitted")


def receiving(body):
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def test_a_body_comes_with_its_origin():
    assert asyncio.run(taken(Request(scope(signed()), receiving(BODY)))) == ("ads.example", BODY)
    with pytest.raises(WrongDigest):
        asyncio.run(taken(Request(scope(signed()), receiving(b"another"))))
    with pytest.raises(BodyTooLarge):
        asyncio.run(taken(Request(scope(signed()), receiving(BODY + b"x"))))


def test_a_body_of_another_kind_is_not_read():
    headers = signed(content_type="text/plain")
    with pytest.raises(WrongContentType):
        asyncio.run(taken(Request(scope(headers), never)))


BAD = {
    "unsigned": (signed()[:-1], 401, "unsigned-request"),
    "stale": (signed(created=NOW - 301), 401, "stale-request"),
    "bad signature": (changed(signed(), b"signature", OTHER_SIGNATURE), 401, "bad-request-signature"),
    "another key": (signed(key=OTHER_KEY), 401, "undeclared-key"),
    "not for us": (signed(helper="helper-1"), 421, "not-for-us"),
    "an unknown origin": (signed(origin="nobody.example"), 404, "unknown-origin"),
}


@pytest.mark.parametrize(("headers", "status", "kind"), BAD.values(), ids=BAD)
def test_the_body_of_what_is_not_admitted_is_not_read(headers, status, kind):
    with pytest.raises((RequestRefused, UnknownOrigin)):
        asyncio.run(taken(Request(scope(headers), never)))
    began, body = asyncio.run(conversation(scope([*headers, (b"content-length", b"8")]), never))
    assert (began["status"], json.loads(body)["type"]) == (status, f"/problems/{kind}")
    # Else the server would read it after all, to throw it away.
    assert (b"connection", b"close") in began["headers"]


def test_a_wrong_body_was_read_and_the_connection_stays():
    """As the ones above are refused, but all of the body is read: nothing is left in the connection."""
    headers = [*signed(), (b"content-length", b"8")]
    began, body = asyncio.run(conversation(scope(headers), receiving(b"the Body")))
    assert (began["status"], json.loads(body)["type"]) == (401, "/problems/wrong-digest")
    assert b"connection" not in dict(began["headers"])


@pytest.mark.parametrize(
    ("method", "headers", "closes"),
    [
        ("GET", [], False),
        ("DELETE", [(b"content-length", b"0")], False),
        ("POST", [(b"content-length", b"0")], False),
        ("POST", [], True),
        ("GET", [(b"content-length", b"1")], True),
        ("DELETE", [(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_a_connection_is_closed_where_a_body_may_be_left_in_it(method, headers, closes):
    began, _ = asyncio.run(conversation(scope(headers, method=method), never))
    assert began["status"] == 401
    assert (b"connection" in dict(began["headers"])) is closes


async def conversation(scope, receive):
    app = FastAPI()
    error_responses.install(app)

    @app.api_route("/v2/{rest:path}", methods=["GET", "POST", "DELETE"])
    async def take(request: Request):
        await taken(request)

    sent = []

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0], b"".join(each.get("body", b"") for each in sent[1:])


def test_one_origin_takes_half_of_the_room_at_most():
    admission = RequestAdmission(VERIFIER, Limits(bodies=4), unconfirmed())

    def request(**changes):
        return Request(scope(signed(**changes)), receiving(BODY))

    async def run():
        async with AsyncExitStack() as inside:
            for _ in range(2):
                await inside.enter_async_context(admission.body(request(), TYPE, len(BODY)))
            with pytest.raises(TooManyUploads, match=r"ads\.example has 2"):
                await taken(request(), admission)
            assert (await taken(request(key=OTHER_KEY, origin="other.example"), admission))[
                0
            ] == "other.example"
        assert (await taken(request(), admission))[0] == "ads.example"

    asyncio.run(run())
