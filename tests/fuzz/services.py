"""The three services, each with requests that reach behind its checks, and a good use of it at the end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from fastapi import FastAPI

from maskedlark.adserver import Limits
from maskedlark.adserver import create_app as adserver_app
from maskedlark.clock import FixedClock
from maskedlark.dp.sampling import Sampling
from maskedlark.parameters import chain
from maskedlark.parameters.document import Document
from maskedlark.release import check_messages
from maskedlark.release.messages import SessionRequest
from maskedlark.web import request_signature
from maskedlark.wire import uploads
from maskedlark.wire.checks import CHECKS_TYPE, Checks, encode_relay
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE, FreezeRequest, encode_chunk
from maskedlark.wire.keys import KEYS_TYPE
from maskedlark.wire.steps import STEP_TYPE
from tests.fuzz.asking import Asking, Sent, changed
from tests.unit.adserver import stored
from tests.unit.helper import world as helpers
from tests.unit.ledger.ledgers import Signs
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY
from tests.unit.web import service as parameters

DATASETS = ["monday", "tuesday", "w.1"]


@dataclass(frozen=True)
class Fuzzed:
    """A service that runs."""

    name: str
    app: FastAPI
    requests: list[Sent]
    well: Callable[[], None]
    """A whole good use of it: run at the end, when it has seen everything."""
    drawn: Callable[[Sent, list[Sent], Random], Sent] = changed
    """How a request is made a hostile one."""


@contextmanager
def adserver(folder: Path) -> Iterator[Fuzzed]:
    """Takes uploads of reports in the right form."""
    database, reports = stored.opened(f"sqlite:///{folder / 'reports.db'}")
    limits = Limits(body_bytes=20_000, reports=20, report_bytes=2000, burst_s=1e9)
    app = adserver_app(stored.ORIGIN, reports, stored.clock(), stored.documents, limits)
    sent = [
        Sent.to("POST", "/v2/reports", uploads.CONTENT_TYPE, uploads.encode_batch(stored.data(5))),
        Sent.to("POST", "/v2/reports", uploads.CONTENT_TYPE, uploads.encode_batch(stored.data(1, b"other"))),
        *(Sent.to("GET", path) for path in ("/health", "/ready", "/openapi.json", "/metrics")),
    ]

    def well() -> None:
        new = stored.data(3, b"a good batch")
        with Asking(app) as asking:
            got = asking.ask(Sent.to("POST", "/v2/reports", uploads.CONTENT_TYPE, uploads.encode_batch(new)))
        answers = uploads.decode_answers(got.body, 3)
        assert [each.outcome for each in answers] == [uploads.Verdict.STORED] * 3

    with ExitStack() as stack:
        stack.callback(database.close)
        yield Fuzzed("ad server", app, sent, well)


@contextmanager
def parameter_service(folder: Path) -> Iterator[Fuzzed]:
    """Publishes documents and keys; one of each is there."""
    service = parameters.Service(folder / "parameters.db", FixedClock(parameters.NOW))
    first, second, third = parameters.chained(3)
    service.publish(first)
    handed = [chain.sign(each, DOCUMENT_KEY).encode() for each in (first, second)]
    keys = [parameters.configuration(0, sequence) for sequence in (1, 2)]
    service.publisher.publish_keys("helper-0", keys[0])
    sent = [
        *(Sent.to("POST", "/v2/documents", JSON_TYPE, body) for body in handed),
        *(Sent.to("POST", "/v2/keys?helper=helper-0", KEYS_TYPE, body) for body in keys),
        Sent.to("GET", f"/v2/documents/{first.digest.hex()}"),
        Sent.to("GET", "/v2/origins/ads.example/documents?after=0"),
        Sent.to("GET", "/v2/origins/ads.example/documents/latest"),
        Sent.to("GET", "/v2/origins/ads.example/documents/1"),
        Sent.to("GET", "/v2/keys?helper=helper-0"),
        *(Sent.to("GET", path) for path in ("/health", "/ready", "/openapi.json", "/metrics")),
    ]

    def drawn(request: Sent, others: list[Sent], rng: Random) -> Sent:
        """Some documents and keys are signed by whom they should be: they are read to the end."""
        found = changed(request, others, rng)
        if found.path == b"/v2/documents" and rng.random() < 0.5:
            text = replace(found, body=second.encode())
            body = changed(text, [text], rng).body
            signed = chain.Signed(body, DOCUMENT_KEY.sign(chain.ORIGIN_LABEL, body))
            try:
                return replace(found, body=signed.encode())
            except UnicodeDecodeError:  # What is no text cannot be handed in at all.
                return found
        return found

    def well() -> None:
        for document in (second, third):
            service.publish(document)
        service.publisher.publish_keys("helper-1", parameters.configuration(1, 1))
        with service.http() as http:
            assert (
                http.get("/v2/origins/ads.example/documents/latest").json()["document"]
                == third.encode().decode()
            )

    try:
        yield Fuzzed("parameter service", service.app, sent, well, drawn)
    finally:
        service.store.close()


@contextmanager
def helper(folder: Path) -> Iterator[Fuzzed]:
    """Takes datasets and questions of an origin that signs; one dataset is frozen, one is open."""
    with helpers.world(folder) as world:
        document = world.publish(fake_rate=0.0)
        frozen = world.frozen(document, "frozen")
        chunk = encode_chunk(world.reports(document, 8))
        sent = _to_helper(world, document, frozen.digest, chunk) + _checks(world, document)

        def drawn(request: Sent, others: list[Sent], rng: Random) -> Sent:
            """Most are signed when they are wrong already; of others the signature itself is changed."""
            kind = rng.random()
            if kind < 0.1:  # As it is: what is open, frozen and aborted differs from request to request.
                return signed(request, rng)
            if kind < 0.7:
                return signed(changed(request, others, rng), rng)
            return changed(signed(request, rng) if kind < 0.9 else request, others, rng)

        def well() -> None:
            found = world.frozen(document, "afterwards")
            body = helpers.question(found.digest, number=1 << 100)
            world.remote().post("/v2/explain", body, JSON_TYPE)

        yield Fuzzed("helper", world.app, sent, well, drawn)


def _to_helper(world: helpers.World, document: object, digest: str, chunk: bytes) -> list[Sent]:
    bitmap = FreezeRequest(accepted=("ff",)).encode()
    asked = [helpers.question(digest, number=number, noise=1e5) for number in (1, 2)]
    asked.append(
        helpers.question(digest, number=3, noise=1e5, where=[{"key": "campaign", "among": ["spring"]}])
    )
    found = [
        *(
            Sent.to("POST", path, JSON_TYPE, body)
            for path in ("/v2/releases", "/v2/explain")
            for body in asked
        ),
        *(Sent.to("GET", path) for path in ("/health", "/ready", "/openapi.json", "/v2/keys")),
        Sent.to("GET", "/v2/origins/ads.example/receipts?after=0"),
        *_sessions(digest),
    ]
    for name in DATASETS:
        query = f"attempt={helpers.opened(name)['attempt']}"
        found += [
            Sent.to("POST", f"/v2/datasets/{name}", JSON_TYPE, helpers.new_dataset(document, name)),  # type: ignore[arg-type]
            Sent.to("GET", f"/v2/datasets/{name}"),
            Sent.to("POST", f"/v2/datasets/{name}/chunks/0?{query}", CHUNK_TYPE, chunk),
            Sent.to("GET", f"/v2/datasets/{name}/chunks/0"),
            Sent.to("POST", f"/v2/datasets/{name}/freeze?{query}", FREEZE_TYPE, bitmap),
            Sent.to("DELETE", f"/v2/datasets/{name}?{query}"),
        ]
    return found


def _checks(world: helpers.World, before: Document) -> list[Sent]:
    """A chunk under a document with checks, what the helper publishes of it, and what others say of it."""
    document = world.publish(version=2, previous=before.digest.hex(), fake_rate=0.0, checks="bits")
    key, path = f"/v2/check-keys/{document.digest.hex()}", "/v2/datasets/checked"
    message = world.remote().post(key, b"", request_signature.NO_BODY_TYPE)
    ids = np.arange(128, dtype=np.uint8).reshape(8, 16)
    other = Checks(1, helpers.NOW, helpers.ORIGIN, document.digest, bytes(32), ids, np.ones((8, 2), np.int64))
    relayed = encode_relay([check_messages.sign(other, Signs(1).current(helpers.NOW))])
    query = f"attempt={helpers.opened('checked')['attempt']}"
    return [
        Sent.to("POST", key),
        Sent.to("POST", f"{key}/message", JSON_TYPE, message),
        Sent.to("POST", path, JSON_TYPE, helpers.new_dataset(document, "checked")),
        Sent.to("POST", f"{path}/chunks/0?{query}", CHUNK_TYPE, encode_chunk(world.reports(document, 8))),
        Sent.to("GET", f"{path}/chunks/0/checks?{query}"),
        Sent.to("POST", f"{path}/chunks/0/checks?{query}", CHECKS_TYPE, relayed),
        Sent.to("POST", f"{path}/freeze?{query}", FREEZE_TYPE, FreezeRequest(accepted=("ff",)).encode()),
    ]


def _sessions(digest: str) -> list[Sent]:
    asked = SessionRequest(
        id="5" * 32, datasets=(digest,), slots=(0,), function="gradient", tag="clicks", arguments={},
        noise=20.0, sampling=Sampling(kind="poisson", rate=0.1), steps=3,
    )  # fmt: skip
    step = f"/v2/sessions/{asked.id}/steps/0"
    return [
        Sent.to("GET", f"/v2/records/{digest}"),
        Sent.to("POST", f"/v2/seeds/{digest}"),
        Sent.to("POST", f"/v2/seeds/{digest}/message", JSON_TYPE, b"{}"),
        Sent.to("POST", "/v2/sessions", JSON_TYPE, asked.encode()),
        Sent.to("POST", step, STEP_TYPE, bytes(64)),
        Sent.to("POST", f"{step}?records=0-9,20-30", STEP_TYPE, bytes(64)),
        Sent.to("POST", f"/v2/sessions/{asked.id}/close"),
    ]


def signed(sent: Sent, rng: Random) -> Sent:
    """Signed by its origin, now and then by somebody else or for somebody else."""
    key = HELPER_KEYS[0] if rng.random() < 0.02 else REQUEST_KEY
    to = "helper-1" if rng.random() < 0.02 else helpers.NAME
    given = dict(sent.headers).get(b"content-type", request_signature.NO_BODY_TYPE.encode()).decode("latin-1")
    try:
        made = request_signature.sign(
            sent.method, sent.target, given, sent.body, helpers.ORIGIN, to, helpers.NOW, key
        )
    except AssertionError:  # Not printable: nobody can sign it.
        return sent
    names = {name.encode() for name in made}
    kept = [(name, value) for name, value in sent.headers if name not in names]
    return replace(sent, headers=(*kept, *((name.encode(), value.encode()) for name, value in made.items())))


SERVICES = {
    "ad server": adserver,
    "parameter service": parameter_service,
    "helper": helper,
}
