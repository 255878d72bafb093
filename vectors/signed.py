"""Vectors of signed documents: a chain of two, and signed documents that must be refused.

`before` is the canonical text of the version before, null for the first; `pinned` is the key that signs the
first; `service_key` is the parameter service's. `data` is the signed document, as the service sends it.
"""

import json
from collections.abc import Iterator
from typing import Any

from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import DOCUMENT_KEY, REQUEST_KEY, SERVICE_KEY
from vectors import documents
from vectors.good import Vectors

PINNED, NEXT = (SigningKey(FixedRandomness(seed).bytes(32)) for seed in (b"pinned", b"next document key"))


def _changed(**changes: Any) -> Document:  # noqa: ANN401
    """The first document, with some settings changed."""
    settings = json.loads(documents.documents()["one model"].encode())
    return Document.model_validate_json(json.dumps({**settings, **changes}))


FIRST = _changed()


def _second(**changes: Any) -> Document:  # noqa: ANN401
    following = {"version": 2, "previous": FIRST.digest.hex(), "document_key": NEXT.verifying.public.hex()}
    return _changed(**{**following, **changes})


def _signed(document: Document, key: SigningKey, service: SigningKey = SERVICE_KEY) -> Signed:
    # Not `chain.sign`, which refuses to sign what must be refused.
    body = document.encode()
    return chain.countersign(Signed(body, key.sign(chain.ORIGIN_LABEL, body)), service)


def _loose(document: Document, key: SigningKey) -> Signed:
    body = document.encode() + b"\n"
    return chain.countersign(Signed(body, key.sign(chain.ORIGIN_LABEL, body)), SERVICE_KEY)


def _vector(before: Document | None) -> dict[str, Any]:
    return {
        "before": before and before.encode().decode(),
        "pinned": PINNED.verifying.public.hex(),
        "service_key": SERVICE_KEY.verifying.public.hex(),
    }


def good() -> Vectors:
    """Two versions, each signed by the key that the one before it declares."""
    made = [("the first", None, FIRST, PINNED), ("the second", FIRST, _second(), DOCUMENT_KEY)]
    return [
        {
            "name": name,
            **_vector(before),
            "digest": found.digest.hex(),
            "data": _signed(found, key).encode().hex(),
        }
        for name, before, found, key in made
    ]


def bad() -> Iterator[dict[str, Any]]:
    """What no client accepts after `before`."""
    second, service = _second(), SERVICE_KEY.verifying.public
    own = json.loads(_signed(second, DOCUMENT_KEY).encode())
    no_service = {**own, "service_signature": None}
    loud = {**own, "origin_signature": own["origin_signature"].upper()}
    for name, before, data, error in (
        ("signed by another key", None, _signed(FIRST, NEXT), "BadSignature"),
        ("signed by its own document key", FIRST, _signed(second, NEXT), "BadSignature"),
        ("signed by the pinned key again", FIRST, _signed(second, PINNED), "BadSignature"),
        ("signed by the request key", FIRST, _signed(second, REQUEST_KEY), "BadSignature"),
        (
            "a request key that signed the document",
            FIRST,
            _signed(_second(request_key=DOCUMENT_KEY.verifying.public.hex()), DOCUMENT_KEY),
            "BadSignature",
        ),
        ("countersigned by somebody else", FIRST, _signed(second, DOCUMENT_KEY, NEXT), "BadSignature"),
        ("not countersigned", FIRST, no_service, "BadSignature"),
        ("a signature in upper case", FIRST, loud, "InvalidDocument"),
        ("a field that is unknown", FIRST, {**own, "more": None}, "InvalidDocument"),
        ("not canonical, and signed by another key", FIRST, _loose(second, NEXT), "BadSignature"),
        ("not canonical", FIRST, _loose(second, DOCUMENT_KEY), "InvalidDocument"),
        ("the same version again", FIRST, _signed(FIRST, DOCUMENT_KEY), "RolledBack"),
        ("a version that is skipped", FIRST, _signed(_second(version=3), DOCUMENT_KEY), "BrokenChain"),
        ("another previous", FIRST, _signed(_second(previous=service.hex()), DOCUMENT_KEY), "BrokenChain"),
        ("another origin", FIRST, _signed(_second(origin="bds.example"), DOCUMENT_KEY), "BrokenChain"),
        ("a first document of version 2", None, _signed(second, PINNED), "BrokenChain"),
    ):
        text = data.encode() if isinstance(data, Signed) else json.dumps(data, indent=1).encode()
        yield {
            "who": "anyone",
            "name": name,
            "error": error,
            "message": "signed document",
            **_vector(before),
            "data": text.hex(),
        }
