"""Requests that are wrong in every way we could think of, full of what must not be said again."""

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from maskedlark.errors import MaskedLarkError
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.wire import uploads
from maskedlark.wire.datasets import JSON_TYPE
from tests.integration.attacker import Attacker
from tests.integration.clumsy import FAILS
from tests.statistical.sides import question, services

VALUE = 1_234_567_891
CAMPAIGN = "planted-campaign-7f3a9c51"
FEATURES = bytes.fromhex("c0ffee15900dfeedfacebeefdeadbea7")
SHOP = "planted-shop-41bd.example"


def provoke(made: LocalCluster, reports: list[bytes], frozen: str) -> Iterator[tuple[str, bytes]]:
    """What services answer to them, each with who said it."""
    yield from (("ad server", each) for each in _adserver(made, reports))
    yield from (("parameter service", each) for each in _parameters(made))
    for service in services(made):
        yield from (("a service", each) for each in _plainly(made, service.address, service.port))
    yield from (("helper", each) for each in _helpers(Attacker(made), made, reports, frozen))


def _plainly(made: LocalCluster, address: str, port: int) -> Iterator[bytes]:
    for path in ("health", "ready", f"{CAMPAIGN}?{CAMPAIGN}={VALUE}"):
        yield made.http.get(f"{address}/{path}").content
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(f"{CAMPAIGN} {VALUE}\r\n\r\n".encode())
        yield link.makefile("rb").read()


def _adserver(made: LocalCluster, reports: list[bytes]) -> Iterator[bytes]:
    wrong = [b"", b"\x09", CAMPAIGN.encode(), uploads.encode_batch([CAMPAIGN.encode(), FEATURES])]
    wrong.append(uploads.encode_batch([reports[0], spoil(reports[0]), reports[0][:-9]]))
    for body in [*wrong, FAILS + reports[0]]:
        for kind in (uploads.CONTENT_TYPE, JSON_TYPE):
            headers = {"content-type": kind}
            answer = made.http.post(f"{made.adserver.address}/v2/reports", content=body, headers=headers)
            yield answer.content
    assert made.http.post(
        f"{made.adserver.address}/v2/reports", content=FAILS, headers={"content-type": uploads.CONTENT_TYPE}
    ).is_server_error


def _parameters(made: LocalCluster) -> Iterator[bytes]:
    address = made.service.address
    for body in (CAMPAIGN.encode(), json.dumps({"body": CAMPAIGN, "x": VALUE}).encode(), FEATURES):
        yield made.http.post(f"{address}/v2/documents", content=body).content
        yield made.http.post(f"{address}/v2/keys?helper=helper-0", content=body).content
    yield made.http.get(f"{address}/v2/keys?helper=nobody&other={CAMPAIGN}{VALUE}").content
    answer = made.http.post(f"{address}/v2/documents", content=FAILS + CAMPAIGN.encode())
    assert answer.is_server_error
    yield answer.content


def _helpers(attacker: Attacker, made: LocalCluster, reports: list[bytes], frozen: str) -> Iterator[bytes]:
    for remote in attacker.remotes:
        for path, text in [
            ("/v2/releases", json.dumps({"arguments": {CAMPAIGN: VALUE}})),
            ("/v2/releases", f'{{"id": "{CAMPAIGN}", "noise": {VALUE}, "function": ["{CAMPAIGN}"]'),
            ("/v2/releases", f"{FAILS.decode()} {CAMPAIGN}"),
            ("/v2/explain", json.dumps({"where": [{"key": "campaign", "among": [CAMPAIGN, None, VALUE]}]})),
            ("/v2/datasets/spoiled", json.dumps({"parameters": CAMPAIGN, "purpose": VALUE})),
        ]:
            yield refusal(partial(remote.post, path, text.encode(), JSON_TYPE))
    # The last payload is helper 1's: helper 0 accepts what the other cannot open.
    answers = attacker.send("spoiled", made.document, [spoil(reports[0]), *reports[1:9]])
    yield b"".join(each.encode() for each in answers)
    yield refusal(lambda: attacker.freeze("spoiled", [answers[0]] * 2))
    yield refusal(lambda: attacker.ask(question(frozen, "loud")))
    among = {"values": ["euros"], "where": [{"key": "campaign", "among": [CAMPAIGN, 2.5]}]}
    yield refusal(lambda: attacker.ask(question(frozen, "sums").model_copy(update={"arguments": among})))


def refusal(ask: Callable[[], object]) -> bytes:
    """What is said of a request that is refused, with all that it was caused by."""
    with pytest.raises(MaskedLarkError) as caught:
        ask()
    return repr((caught.value, caught.value.__cause__)).encode()


def spoil(data: bytes) -> bytes:
    """The same report with a payload that does not open."""
    return data[:-1] + bytes([data[-1] ^ 1])
