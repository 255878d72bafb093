"""Attackers against real processes: refused, in bounded memory, while others are answered.

Each attack is first seen to win against a server that does nothing against it, where that is cheap.
"""

import contextlib
import http.server
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from maskedlark.clock import SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.simulate.services import Process
from maskedlark.web import request_signature
from maskedlark.web.errors import StrangeAnswer
from maskedlark.web.remote import Remote
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import uploads
from maskedlark.wire.checks import CHECKS_TYPE, MAX_RELAY
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE
from maskedlark.wire.steps import STEP_TYPE
from tests.integration.hostile import (
    GIB,
    MIB,
    Memory,
    Naive,
    Target,
    are_closed,
    bomb,
    connect,
    dripping,
    head,
    send_without_end,
    status,
)

SETTINGS = """
keys = ["campaign"]
k = 1
fake_rate = 0.0
budget = {epsilon = 8.0, delta = 0.0}
[values]
bought = [0, 1]
"""
OTHER = "other.example"
IDLE_S = 3
PLACES = 300
MAX_GROWN = 64 * MIB
"""More than any service may grow under any attack here. A gigabyte is sent, and a million reports."""
UNSENT = 16 * MIB
"""What the kernel may keep of what was sent and never read."""
REFUSED = range(400, 500)
KEYS, OPENED = "application/vnd.maskedlark.keys", f"attempt={'0' * 32}"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[LocalCluster]:
    serving = f"idle_s = {IDLE_S}\nmax_connections = {PLACES}"
    folder = tmp_path_factory.mktemp("stage")
    with local_cluster(folder, SETTINGS, SystemRandomness(), others=[OTHER], serving=serving) as found:
        found.publish(SETTINGS, OTHER)
        yield found


@pytest.fixture(scope="module")
def naive() -> Iterator[Naive]:
    with Naive() as running:
        yield running


def signed(made: LocalCluster, path: str, media_type: str, body: bytes = b"", origin: str | None = None):
    """The headers of a request that an origin of the helper's signs, whatever it sends then."""
    name = origin or made.origin
    now, key = SystemClock().now(), made.request_keys[name]
    return request_signature.sign("POST", path, media_type, body, name, "helper-0", now, key)


LARGE = ("chunk", "checks", "freeze", "step")
TAKING = {
    "reports": ("adserver", "/v2/reports", uploads.CONTENT_TYPE, 4 * MIB),
    "documents": ("service", "/v2/documents", JSON_TYPE, MIB),
    "keys": ("service", "/v2/keys?helper=helper-0", KEYS, MIB),
    "begin": ("helper", "/v2/datasets/d", JSON_TYPE, 1 << 12),
    "chunk": ("helper", f"/v2/datasets/d/chunks/0?{OPENED}", CHUNK_TYPE, 16 * MIB),
    "checks": ("helper", f"/v2/datasets/d/chunks/0/checks?{OPENED}", CHECKS_TYPE, MAX_RELAY),
    "freeze": ("helper", f"/v2/datasets/d/freeze?{OPENED}", FREEZE_TYPE, 32 * MIB),
    "releases": ("helper", "/v2/releases", JSON_TYPE, 1 << 18),
    "explain": ("helper", "/v2/explain", JSON_TYPE, 1 << 18),
    "make a seed": ("helper", f"/v2/seeds/{'0' * 64}", NO_BODY_TYPE, 0),
    "seed": ("helper", f"/v2/seeds/{'0' * 64}/message", JSON_TYPE, 1 << 14),
    "make a check key": ("helper", f"/v2/check-keys/{'0' * 64}", NO_BODY_TYPE, 0),
    "check key": ("helper", f"/v2/check-keys/{'0' * 64}/message", JSON_TYPE, 1 << 14),
    "session": ("helper", "/v2/sessions", JSON_TYPE, 1 << 18),
    "step": ("helper", f"/v2/sessions/{'0' * 32}/steps/0", STEP_TYPE, 8 * MIB),
    "close": ("helper", f"/v2/sessions/{'0' * 32}/close", NO_BODY_TYPE, 0),
}
"""Every endpoint that one sends to: whose, where, what, and how much at most."""


def process_of(made: LocalCluster, name: str) -> Process:
    party = TAKING[name][0]
    return made.helpers[0].process if party == "helper" else getattr(made, party)


def target_of(made: LocalCluster, name: str, body: bytes = b"") -> Target:
    party, path, media_type, most = TAKING[name]
    headers = signed(made, path, media_type, body) if party == "helper" else {"content-type": media_type}
    return Target(process_of(made, name).address, path, headers, most)


def is_well(process: Process) -> bool:
    """As anyone would ask, on a new connection."""
    with connect(process.address) as connection:
        connection.sendall(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        return status(connection) == 200


def post(target: Target, body: bytes, **headers: str) -> int | None:
    """As one asks who is in no hurry, on a new connection."""
    given = target._replace(headers=target.headers | headers)
    with connect(target.address) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(given, f"content-length: {len(body)}") + body)
        return status(connection)


def test_every_endpoint_that_takes_a_body_is_attacked_here(made):
    found = set()
    for party, process in (
        ("adserver", made.adserver),
        ("service", made.service),
        ("helper", made.helpers[0].process),
    ):
        shown = httpx.get(f"{process.address}/openapi.json").json()["paths"]
        found |= {(party, path) for path, methods in shown.items() if {"post", "put", "patch"} & {*methods}}
    named = {"{name}": "d", "{number}": "0", "{session}": "0" * 32, "{step}": "0"}
    named |= dict.fromkeys(("{dataset}", "{parameters}"), "0" * 64)
    paths = {(party, "/".join(named.get(part, part) for part in path.split("/"))) for party, path in found}
    assert paths == {(party, path.partition("?")[0]) for party, path, *_ in TAKING.values()}


@pytest.mark.long
def test_a_gigabyte_fills_a_naive_server(naive):
    memory = Memory(naive.process.pid)
    with connect(naive.target.address) as connection:
        connection.sendall(head(naive.target, f"content-length: {GIB}"))
        for _ in range(80):
            connection.sendall(bytes(MIB))
        assert memory.grown() > MAX_GROWN


@pytest.mark.parametrize("name", TAKING)
def test_a_gigabyte_is_refused_when_it_is_announced(made, name):
    process, target = process_of(made, name), target_of(made, name)
    memory = Memory(process.pid)
    with connect(target.address) as connection:
        connection.sendall(head(target, f"content-length: {GIB}"))
        assert status(connection) == 413
    assert send_without_end(target, chunked=False) < UNSENT
    assert is_well(process)
    assert memory.grown() < MAX_GROWN


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long) if each in LARGE else each for each in TAKING]
)
def test_a_gigabyte_that_is_not_announced_is_read_to_the_limit(made, name):
    process, target = process_of(made, name), target_of(made, name)
    memory = Memory(process.pid)
    with ThreadPoolExecutor(3) as attackers:
        sent = [attackers.submit(send_without_end, target, True) for _ in range(3)]
        assert is_well(process)
    assert max(each.result() for each in sent) < target.max_bytes + UNSENT
    assert is_well(process)
    assert memory.grown() < 3 * 3 * target.max_bytes + MAX_GROWN // 2


def junk(made: LocalCluster, batches: int) -> None:
    """So many batches of as many reports as one takes, each of one byte: all refused, by name."""
    reports = [b"\x01"] * 4096
    body, target = uploads.encode_batch(reports), target_of(made, "reports")
    memory = Memory(made.adserver.pid)
    with httpx.Client(timeout=60) as client:
        for _ in range(batches):
            answer = client.post(target.address + target.path, content=body, headers=target.headers)
            verdicts = uploads.decode_answers(answer.raise_for_status().content, len(reports))
            assert all(each.error for each in verdicts)
    assert is_well(made.adserver)
    assert memory.grown() < MAX_GROWN


def test_junk_reports_are_refused_in_bounded_memory(made):
    junk(made, 3)


@pytest.mark.long
def test_a_million_junk_reports_are_refused_in_bounded_memory(made):
    junk(made, 250)


def test_a_million_reports_in_one_upload_are_refused(made):
    memory = Memory(made.adserver.pid)
    body = b"\x01" + b"\x00\x00\x00\x01x" * 800_000
    assert post(target_of(made, "reports"), body) == 400
    assert post(target_of(made, "reports"), body + b"\x00\x00\x00\x01x" * 200_000) == 413
    assert memory.grown() < MAX_GROWN


DEEP = 100_000
NESTED = {
    "JSON lists": b"[" * DEEP + b"]" * DEEP,
    "JSON objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "CBOR lists": b"\x81" * DEEP + b"\x00",
    "CBOR lists without end": b"\x9f" * DEEP,
    "CBOR maps": b"\xa1\x00" * DEEP + b"\x00",
    "CBOR tags": b"\xc1" * DEEP + b"\x00",
}


def test_what_is_nested_deeply_is_a_mistake_of_a_naive_server(naive):
    assert post(naive.target, NESTED["JSON lists"]) == 500


@pytest.mark.parametrize("name", TAKING)
def test_what_is_nested_deeply_is_refused(made, name):
    process = process_of(made, name)
    memory = Memory(process.pid)
    for body in NESTED.values():
        assert post(target_of(made, name, body), body) in REFUSED
    assert is_well(process)
    assert memory.grown() < MAX_GROWN


@pytest.mark.long
def test_a_bomb_goes_off_in_a_naive_server(naive):
    memory = Memory(naive.process.pid)
    assert post(naive.target, bomb(80 * MIB), **{"content-encoding": "gzip"}) == 200
    assert memory.grown() > MAX_GROWN


@pytest.mark.parametrize("name", TAKING)
def test_a_bomb_is_not_taken(made, name):
    process, body = process_of(made, name), bomb(MIB)
    memory = Memory(process.pid)
    refused = 415 if TAKING[name][-1] else 413  # What takes no body looks no further.
    for encoding in ("gzip", "br", "zstd", "deflate"):
        assert post(target_of(made, name, body), body, **{"content-encoding": encoding}) == refused
    # Without saying so it is bytes like others, and no document or report.
    assert post(target_of(made, name, body), body) in REFUSED
    assert memory.grown() < MAX_GROWN


@contextlib.contextmanager
def answering(body: bytes, encoding: str) -> Iterator[str]:
    """A service that answers everything so, however it was asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-encoding", encoding)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "GZIP"])
def test_a_service_cannot_send_a_bomb_to_its_client(encoding):
    body = bomb(4 * MIB)
    with answering(body, encoding) as address:
        if encoding == "gzip":
            assert len(httpx.get(address).content) > 100 * len(body)  # As httpx would have it.
        with Remote(address) as remote, pytest.raises(StrangeAnswer, match="compressed"):
            remote.get("/v2/keys")


def test_slow_senders_are_cut_off_and_shut_nobody_out(made):
    """More of them than there are places: half drip a byte a second of a head, half of a body."""
    target = target_of(made, "reports")
    heads = [b"POST /v2/reports HTTP/1.1\r\nx: "] * 200
    bodies = [head(target, "content-length: 100000")] * 200
    memory = Memory(made.adserver.pid)
    report = uploads.encode_batch([b"\x01"])
    with dripping(target.address, [*bodies, *heads]) as cut:
        while not all(cut[len(bodies) :]):
            assert post(target, report) == 200
            time.sleep(0.1)
    assert is_well(made.adserver)
    assert memory.grown() < MAX_GROWN


def test_idle_connections_shut_others_out_of_a_naive_server(naive):
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connect(naive.target.address))
        assert post(naive.target, b"") == 503


@pytest.mark.parametrize(
    "party", ["adserver", *(pytest.param(each, marks=pytest.mark.long) for each in ("service", "helper"))]
)
def test_thousands_of_idle_connections_shut_nobody_out(made, party):
    count = 3000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"only {hard} files may be open here: run it with ulimit -Hn {count + 500} or more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = made.helpers[0].process if party == "helper" else getattr(made, party)
    memory = Memory(process.pid)
    with contextlib.ExitStack() as stack:
        links = []
        for place in range(count):
            links.append(stack.enter_context(connect(process.address)))
            if place % 500 == 0:
                assert is_well(process)
        assert is_well(process)
        assert are_closed(links, 60) == count
    assert memory.grown() < MAX_GROWN


def test_an_origin_that_floods_a_helper_keeps_no_other_out(made):
    """It signs, so its bodies are read: it stops in the middle of as many as it may have, and asks more."""
    name, body = "explain", b"{}"
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            link = stack.enter_context(connect(made.helpers[0].process.address))
            link.sendall(head(target_of(made, name), "content-length: 1000") + b"{")
        while (answered := post(target_of(made, name, body), body)) != 503:
            assert answered == 422  # Not all have been let in yet.
            time.sleep(0.1)
        _, path, media_type, most = TAKING[name]
        headers = signed(made, path, media_type, body, OTHER)
        other = Target(made.helpers[0].process.address, path, headers, most)
        assert [post(other, body) for _ in range(5)] == [422] * 5
