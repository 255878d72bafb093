"""Requests drawn from each service's own OpenAPI, valid and not: none breaks it, and refusals are problems.

The helper's are signed as its origin would, so that they get behind its gate, and sent unsigned as well.
"""

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode

from maskedlark.release.messages import Request, SessionRequest
from maskedlark.release.shared_seed import SignedSeed
from maskedlark.wire import uploads
from maskedlark.wire.checks import CHECKS_TYPE
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE, NewDataset
from maskedlark.wire.keys import KEYS_TYPE
from maskedlark.wire.steps import STEP_TYPE
from tests.fuzz import services, totals
from tests.fuzz.asking import Asking, Got, Sent, check
from tests.fuzz.running import watched
from tests.fuzz.services import Fuzzed, signed

SERVICES = {
    "ad server": services.adserver,
    "parameter service": services.parameter_service,
    "helper": services.helper,
}
Wrapping = Callable[[Sent], Sent]

# Bodies in forms of our own, which no description spells out: any bytes, and some that begin right.
for _media_type in (
    uploads.CONTENT_TYPE,
    CHUNK_TYPE,
    FREEZE_TYPE,
    CHECKS_TYPE,
    STEP_TYPE,
    KEYS_TYPE,
):
    schemathesis.openapi.media_type(
        _media_type, st.one_of(st.binary(), st.binary().map(lambda data: b"\1" + data))
    )


_SIGNATURE = {"type": "string", "pattern": "^[0-9a-f]{128}$"}
JSON_BODIES: dict[str, dict[str, Any]] = {
    "/v2/datasets/{name}": NewDataset.model_json_schema(),
    "/v2/releases": Request.model_json_schema(),
    "/v2/explain": Request.model_json_schema(),
    "/v2/sessions": SessionRequest.model_json_schema(),
    "/v2/seeds/{dataset}/message": SignedSeed.model_json_schema(),
    "/v2/check-keys/{parameters}/message": SignedSeed.model_json_schema(),
    "/v2/documents": {
        "type": "object",
        "properties": {
            "document": {"type": "string"},
            "origin_signature": _SIGNATURE,
            "service_signature": {"anyOf": [_SIGNATURE, {"type": "null"}]},
        },
        "required": ["document", "origin_signature", "service_signature"],
        "additionalProperties": False,
    },
}
"""What the services read as JSON themselves: their descriptions only say that there are bytes."""


def described(service: Fuzzed) -> dict[str, Any]:
    """A service's own description, with the forms of its JSON bodies put in."""
    found = copy.deepcopy(service.app.openapi())
    for path, schema in JSON_BODIES.items():
        if path in found["paths"]:
            found["paths"][path]["post"]["requestBody"]["content"][JSON_TYPE]["schema"] = schema
    return found


def as_sent(case: Any) -> Sent:
    """The bytes of a drawn request, as a client would send them."""
    prepared = requests.Request(**_plain(case.as_transport_kwargs(base_url="http://service.test"))).prepare()
    body = prepared.body or b""
    url = urlsplit(str(prepared.url))
    return Sent(
        str(prepared.method),
        url.path.encode(),
        url.query.encode(),
        tuple((_bytes(name).lower(), _bytes(value)) for name, value in prepared.headers.items()),
        _bytes(body) if isinstance(body, str | bytes) else b"",
    )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", errors="replace")


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in _TAKEN}


_TAKEN = {"method", "url", "headers", "cookies", "params", "data", "json", "files"}


def as_response(sent: Sent, got: Got) -> requests.Response:
    """An answer as schemathesis takes it."""
    made = requests.Response()
    made.status_code, made._content = got.status, got.body
    made.headers["content-type"] = got.media_type
    made.request = requests.Request(
        sent.method, "http://service.test" + sent.path.decode("latin-1")
    ).prepare()
    made.url, made.raw = str(made.request.url), None
    return made


def explore(service: Fuzzed, asking: Asking, examples: int, wrap: Wrapping) -> int:
    """So many requests for every operation, drawn from its description and from its contrary."""
    schema, asked = schemathesis.openapi.from_dict(described(service)), 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        drawn = st.one_of(
            operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
            *_contrary(operation),
        )

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=drawn)
        def ask(case: Any) -> None:
            nonlocal asked
            sent = wrap(as_sent(case))
            got = asking.ask(sent)
            asked += 1
            check(sent, got)
            case.validate_response(as_response(sent, got), checks=[not_a_server_error])

        ask()
    return asked


def _contrary(operation: Any) -> list[Any]:
    """Requests against the description, where it says anything that can be broken."""
    has = operation.body or operation.path_parameters or operation.query
    return [operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)] if has else []


def run(name: str, examples: int, folder: Path, wrap: Wrapping) -> int:
    begun = time.process_time()
    with ExitStack() as stack:
        service = stack.enter_context(SERVICES[name](folder))
        asking = stack.enter_context(Asking(service.app))
        stack.enter_context(watched())
        asked = explore(service, asking, examples, wrap)
        service.well()
    totals.ran(f"OpenAPI of the {name}", asked, time.process_time() - begun, "")
    return asked


def as_it_is(sent: Sent) -> Sent:
    return sent


def by_its_origin(sent: Sent) -> Sent:
    return signed(sent, Random(sent.body))


CASES = [
    ("ad server", as_it_is),
    ("parameter service", as_it_is),
    ("helper", as_it_is),
    ("helper", by_its_origin),
]


@pytest.mark.parametrize(("name", "wrap"), CASES)
def test_requests_drawn_from_the_description_are_answered(name, wrap, tmp_path):
    assert run(name, 8, tmp_path, wrap) >= 10


@pytest.mark.long
@pytest.mark.parametrize(("name", "wrap"), CASES)
def test_many_requests_drawn_from_the_description_are_answered(name, wrap, tmp_path):
    assert run(name, totals.DRAWN, tmp_path, wrap) >= totals.MIN_DRAWN
