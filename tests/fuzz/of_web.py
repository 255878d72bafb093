"""Decoders of HTTP: signed requests, problem documents, what a parameter service answers."""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from maskedlark.clock import FixedClock
from maskedlark.errors import MaskedLarkError
from maskedlark.web import problem, request_signature
from maskedlark.web.errors import NotForUs, RequestRefused, UnknownOrigin
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.request_signature import RequestVerifier, SignedRequest
from maskedlark.wire.service_time import ServiceTime
from maskedlark.wire.signatures import VerifyingKey
from tests.fuzz.of_documents import SIGNED
from tests.fuzz.running import Decoder
from tests.unit.parameters.cases import HELPER_KEYS, REQUEST_KEY, SERVICE_KEY
from tests.unit.web.service import NOW, PINNED, URL, configuration

ORIGIN, HELPER = "ads.example", "helper-0"
TARGET = "/v2/datasets/monday/chunks/0?attempt=" + "0" * 32


def signed_request(body: bytes = b"{}", target: str = TARGET) -> bytes:
    """A request's head as lines: method, path, query, headers."""
    headers = request_signature.sign(
        "POST", target, "application/json", body, ORIGIN, HELPER, NOW, REQUEST_KEY
    )
    path, _, query = target.partition("?")
    return "\n".join(["POST", path, query, *(f"{name}: {value}" for name, value in headers.items())]).encode()


def head_of(data: bytes) -> tuple[str, bytes, bytes, list[tuple[bytes, bytes]]]:
    """What a server makes of these lines."""
    method, path, query, *lines = [*data.split(b"\n"), b"", b"", b""][: max(3, data.count(b"\n") + 1)]
    headers = [line.partition(b": ")[::2] for line in lines]
    return method.decode("latin-1"), path, query, [(name.lower(), value) for name, value in headers]


def _key_of(origin: str) -> VerifyingKey:
    if origin != ORIGIN:
        raise UnknownOrigin("no key is pinned")
    return REQUEST_KEY.verifying


def _signatures() -> list[Decoder]:
    gate = RequestVerifier(HELPER, _key_of, FixedClock(NOW))
    covers = ("web.request_signature.read", "web.request_signature._bytes")
    return [
        Decoder(
            "signed request",
            covers,
            (signed_request(), signed_request(b"", "/v2/explain")),
            lambda data: request_signature.read(*head_of(data)),
            (RequestRefused,),
            _spells,
        ),
        Decoder(
            "request at the gate",
            (
                *covers,
                "web.request_signature.RequestVerifier.verify",
                "wire.signatures.VerifyingKey.verify_raw",
            ),
            (signed_request(),),
            lambda data: gate.verify(*head_of(data)),
            (RequestRefused, NotForUs, UnknownOrigin),
            _was_signed,
        ),
    ]


def _spells(data: bytes, found: tuple[SignedRequest, bytes]) -> bool:
    """What was read stands in the head, to the letter."""
    signed, _ = found
    text = data.decode("latin-1")
    return all(value.removeprefix("?") in text for value in signed.values) and signed.parameters in text


def _was_signed(data: bytes, _: object) -> bool:
    """Only what was signed gets in: other headers may differ, nothing that is covered."""
    ours = {*signed_request().split(b"\n")}
    covered = data.split(b"\n")[:3]
    named = [line for line in data.split(b"\n")[3:] if line.partition(b":")[0].lower() in _COVERED]
    return set(covered) <= ours and {line.partition(b": ")[2] for line in named} <= {
        line.partition(b": ")[2] for line in ours
    }


_COVERED = {name.encode() for name in request_signature._HEADERS}


def _problems() -> list[Decoder]:
    said = {"type": "/problems/bad-signature", "title": "A signature", "status": 403, "detail": "no\x1b[31m"}
    facts = {"left_epsilon": 0.5, "datasets": ["a", {"deep": [1, [2, [3]]]}], "number": 1 << 80}
    examples = [said | facts, said | {"type": "/problems/storage-unavailable"}, {"type": "about:blank"}]

    def read(data: bytes) -> MaskedLarkError:
        found = problem.error_of((400, 403, 500, 503, 200)[len(data) % 5], data)
        text = f"{found} {json.dumps(found.facts(), allow_nan=False)}"
        assert text.isprintable(), "another party's words are fit for a terminal"
        problem.of(found).encode()
        return found

    covers = ("web.problem._decode",)
    return [Decoder("problem document", covers, tuple(json.dumps(each).encode() for each in examples), read)]


class _Answers(httpx.BaseTransport):
    """A parameter service that answers with these bytes in place of one of its own answers."""

    def __init__(self) -> None:
        self.body, self.path = b"", ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith(self.path):
            return httpx.Response(200, content=self.body)
        if path.endswith("latest"):
            return httpx.Response(200, content=SIGNED[-1].encode())
        return httpx.Response(200, content=_page(int(request.url.params["after"])))


def _page(after: int) -> bytes:
    listed = b",".join(each.encode() for each in SIGNED[after:])
    return b'{"documents":[' + listed + b'],"more":false}'


def _clients() -> list[Decoder]:
    """A client that begins anew for every answer; its files are in memory where there is such a folder."""

    def asked(path: str, data: bytes) -> object:
        transport = _Answers()
        transport.body, transport.path = data, path
        fast = Path("/dev/shm")
        memory = TemporaryDirectory(dir=fast if fast.is_dir() else None)
        http, clock = httpx.Client(transport=transport), FixedClock(NOW)
        given = SERVICE_KEY.verifying, Path(memory.name), clock, PINNED.origins
        with memory, ParameterClient(URL, *given, http=http) as client:
            if path == "keys":
                return client.keys(HELPER, HELPER_KEYS[0].verifying)
            if path == "time":
                return client.time(bytes(16))
            return client.chain(ORIGIN)

    answers = {"latest": SIGNED[-1].encode(), "documents": _page(0), "keys": configuration(0, 1)}
    answers["time"] = ServiceTime.sign(bytes(16), NOW, SERVICE_KEY).encode()
    covers = ("web.pages.decode_page", "parameters.chain.decode", "wire.keys.verify")
    return [
        Decoder(f"client asks for {path}", covers, (data,), partial(asked, path), weight=0.04)
        for path, data in answers.items()
    ]


def decoders() -> list[Decoder]:
    """All of this room."""
    return [*_signatures(), *_problems(), *_clients()]
