"""The ad server's signed requests, over a real socket and through a real server, as a helper takes them."""

import re
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from maskedlark.clock import FixedClock
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import body, error_responses
from maskedlark.web.errors import (
    BodyTooLarge,
    NotForUs,
    ServiceAway,
    StaleRequest,
    StrangeAnswer,
    UndeclaredKey,
    UnsignedRequest,
)
from maskedlark.web.remote import Patience, Remote, SignedRemote
from maskedlark.web.request_signature import RequestVerifier
from maskedlark.wire.signatures import SigningKey

NOW = 1_900_000_000
KEY, OTHER_KEY = (SigningKey.generate(FixedRandomness(seed)) for seed in (b"ads", b"other"))
MAX_BODY = 1 << 20


def helper_app():
    """A helper that says what it was sent, and errs when it is asked to."""
    app = FastAPI()
    error_responses.install(app)
    verifier = RequestVerifier("helper-0", {"ads.example": KEY.verifying}.__getitem__, FixedClock(NOW))

    @app.api_route("/v2/{rest:path}", methods=["GET", "POST", "DELETE"])
    async def echo(request: Request, rest: str):
        scope = request.scope
        verified = verifier.verify(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"]
        )
        with body.BodyMemory(MAX_BODY).reserve() as reservation:
            found = await body.read(request, MAX_BODY, 10.0, reservation)
        verified.check(found)
        said = [
            verified.origin,
            request.method,
            rest,
            request.headers["content-type"],
            *request.query_params.values(),
        ]
        return Response("\n".join(said).encode() + b"\n" + found)

    @app.get("/budget")
    async def budget():
        raise BudgetExhausted(0.5, 1.0, 2.5)

    @app.get("/storage")
    async def storage():
        raise StorageUnavailable("the database cannot answer; try again later")

    return app


@contextmanager
def served(app):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            # The socket listens already: whoever connects before the server has started waits.
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def url():
    with served(helper_app()) as found:
        yield found


def remote(url, helper="helper-0", origin="ads.example", key=KEY, now=NOW, **more):
    return SignedRemote(url, helper, origin, key, FixedClock(now), **more)


PATHS = [
    "/v2/plain",
    "/v2/a%2Fb%20c/%C3%BC",
    "/v2/a b/ü",
    "/v2/x;y=1,2/(z)'~!$&*+=@:",
    "/v2/%41/a//b",
    "/v2/a%25b",
]
QUERIES = [None, {}, {"x": 1}, {"x": "a b/ü&=?#%", "y": "+", "z": ""}]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_paths_and_queries_arrive_as_they_were_signed(url, path, query):
    with remote(url) as asking:
        found = asking.post(path, b"body", "application/json", query).decode().split("\n")
        origin, method, _, kind, *values, body = found
        assert (origin, method, kind, body) == ("ads.example", "POST", "application/json", "body")
        assert values == [str(value) for value in (query or {}).values()]
        assert asking.get(path, query).split(b"\n")[1] == b"GET"
        assert asking.delete(path, query).split(b"\n")[1] == b"DELETE"


def test_a_path_is_decoded_only_behind_the_gate(url):
    with remote(url) as asking:
        assert asking.get("/v2/a%2Fb%20c/%C3%BC").decode().split("\n")[2] == "a/b c/ü"


def test_a_request_without_a_body_is_signed_with_a_type_all_the_same(url):
    with remote(url) as asking:
        assert asking.get("/v2/a").split(b"\n")[3] == b"application/octet-stream"


def test_refusals_come_back_as_themselves(url):
    for error, asking in {
        NotForUs: remote(url, helper="helper-1"),
        UndeclaredKey: remote(url, key=OTHER_KEY),
        StaleRequest: remote(url, now=NOW - 301),
        UnsignedRequest: Remote(url),
        BodyTooLarge: remote(url),
    }.items():
        with asking, pytest.raises(error) as found:
            asking.post("/v2/a", bytes(MAX_BODY + (error is BodyTooLarge)), "application/json")
        assert type(found.value) is error


def test_facts_of_an_error_come_with_it(url):
    with remote(url) as asking, pytest.raises(BudgetExhausted, match="left") as found:
        asking.get("/budget")
    facts = {"left_epsilon": 0.5, "wanted_epsilon": 1.0, "noise_that_fits": 2.5}
    assert facts.items() <= found.value.facts().items()


def test_a_service_whose_storage_is_away_is_away(url):
    with remote(url) as asking, pytest.raises(ServiceAway, match="try again") as found:
        asking.get("/storage")
    assert type(found.value) is ServiceAway


def test_nobody_there_is_away():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with remote(f"http://127.0.0.1:{port}") as asking, pytest.raises(ServiceAway):
        asking.get("/v2/a")


def test_a_second_try_is_signed_anew():
    seen = []

    def answer(request):
        seen.append(request.headers["signature-input"])
        return httpx.Response(200)

    clock = FixedClock(NOW)
    http = httpx.Client(transport=httpx.MockTransport(answer))
    asking = SignedRemote("http://helper.test", "helper-0", "ads.example", KEY, clock, http)
    asking.get("/a")
    clock.seconds += 1000
    asking.get("/a")
    assert [f"created={NOW}" in seen[0], f"created={NOW + 1000}" in seen[1]] == [True, True]


def test_how_much_is_read_is_an_argument(url):
    body = bytes(MAX_BODY)
    with remote(url, patience=Patience(max_bytes=1000)) as asking:
        with pytest.raises(StrangeAnswer, match="more than 1000 bytes"):
            asking.post("/v2/a", body, "application/json")
        found = asking.post("/v2/a", body, "application/json", patience=Patience(max_bytes=2 << 20))
        assert found.endswith(body)


def ids_of(ask, count):
    """The ids in as many requests that are made with an HTTP client."""
    seen = []

    def answer(request):
        seen.append(request.headers.get("x-request-id"))
        return httpx.Response(200)

    for _ in range(count):
        ask(httpx.Client(transport=httpx.MockTransport(answer)))
    return seen


def test_each_client_names_its_requests_at_random():
    one, two = ids_of(lambda http: remote("http://helper.test", http=http).get("/v2/a"), 2)
    assert one != two
    assert re.fullmatch("[0-9a-f]{16}", one)


def test_a_request_is_named_as_its_client_is_told():
    said = ids_of(lambda http: remote("http://helper.test", http=http, request_id="abcdefgh").get("/v2/a"), 2)
    assert said == ["abcdefgh"] * 2


def test_what_is_not_signed_has_no_id():
    assert ids_of(lambda http: Remote("http://ads.test", http).post("/v2/reports", b"", "text/plain"), 2) == [
        None,
        None,
    ]


def test_a_proxy_may_name_a_request_anew(url):
    def rename(request):
        request.headers["x-request-id"] = "from-a-proxy"

    with remote(url, http=httpx.Client(event_hooks={"request": [rename]})) as asking:
        assert asking.post("/v2/a", b"body", "application/json").endswith(b"body")
