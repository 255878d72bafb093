"""Vectors of check messages: signed ones that hold, and such as must be refused, each with its error."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from maskedlark.core import field
from maskedlark.core.field import P
from maskedlark.helper import check_keys
from maskedlark.helper.keyring import CHECK_LABEL
from maskedlark.ledger.receipt import Certificate, SignedCertificate, certify
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.release import check_messages
from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.signatures import SigningKey
from vectors import documents
from vectors.good import NOW, Vectors, numbers_of

ROWS = 3
INVALID = 1
"""The row whose numbers prove nothing."""


def vectors() -> Vectors:
    """Messages of all helpers, and what is made of one of them."""
    found: Vectors = []
    for name in ("two helpers, checked", "three helpers, checked"):
        document = documents.documents()[name]
        checks = _checks(name, document)
        messages = [check_messages.sign(each, signer_of(document, each.place)) for each in checks]
        found += [_vector(name, document, each.place, messages[each.place], each) for each in checks]
    return [
        *found,
        *(_vector(name, document, 1, data, None, error) for data, error in _bad(document, checks)),
    ]


def _checks(name: str, document: Document) -> list[Checks]:
    rng, helpers = FixedRandomness(f"check messages, {name}".encode()), len(document.helpers)
    ids = np.frombuffer(rng.bytes(16 * ROWS), np.uint8).reshape(ROWS, 16)
    numbers = [np.stack([rng.below(P, ROWS), rng.below(P, ROWS)], axis=1) for _ in range(helpers)]
    f = [sum(int(own[row, 0]) for own in numbers) for row in range(ROWS)]
    rest = [sum(int(own[row, 1]) for own in numbers[1:]) for row in range(ROWS)]
    for row in range(ROWS):
        numbers[0][row, 1] = (f[row] * (f[row] - 1) - rest[row] + (row == INVALID)) % P
    digest = key_of(document).digest
    return [
        Checks(place, NOW, document.origin, document.digest, digest, ids, own)
        for place, own in enumerate(numbers)
    ]


def key_of(document: Document) -> check_keys.CheckKey:
    """The check key, as the document's first helper derives it."""
    return check_keys.derive(documents.identity(document.helpers[0].name).derive(CHECK_LABEL), document)


def signer_of(document: Document, place: int) -> tuple[SigningKey, SignedCertificate]:
    """The key that a helper signs with, and its certificate."""
    name = document.helpers[place].name
    key = SigningKey(FixedRandomness(f"receipt key of {name}".encode()).bytes(32))
    public = key.verifying.public.hex()
    made = Certificate(helper=name, key=public, not_before=NOW - 3600, not_after=NOW + 3600)
    return key, certify(made, documents.identity(name))


def _bad(document: Document, checks: list[Checks]) -> Iterator[tuple[bytes, str]]:
    """What a relay or a helper may make of helper 1's message."""
    own, signer = checks[1], signer_of(document, 1)
    message = check_messages.sign(own, signer)
    signed = SignedChecks.decode(message)
    body = signed.body
    for changed in (
        replace(own, place=2),
        replace(own, time=NOW + 3600),
        replace(own, origin="other.example"),
        replace(own, parameters=bytes(32)),
        replace(own, key_digest=bytes(32)),
    ):
        yield check_messages.sign(changed, signer), "BadChecks"
    yield check_messages.sign(own, signer_of(document, 2)), "BadChecks"
    yield replace(signed, body=body[:-1] + bytes([body[-1] ^ 1])).encode(), "BadChecks"
    yield _again(body[:-8] + field.P.to_bytes(8, "little"), signer), "NotInField"
    yield _again(body[:-32] + body[-64:-32], signer), "DuplicateId"
    yield _again(body[:-1], signer), "WrongLength"
    yield _again(b"\1" + body[1:], signer), "UnsupportedVersion"
    yield message[:-1], "Truncated"
    yield message + b"\0", "TrailingBytes"


def _again(body: bytes, signer: tuple[SigningKey, SignedCertificate]) -> bytes:
    """Whatever stands in it, signed by the helper."""
    key, certificate = signer
    certified = bytes.fromhex(certificate.signature)
    signature = key.sign(check_messages.LABEL, body)
    return SignedChecks(body, signature, certificate.certificate, certified).encode()


def _vector(
    name: str,
    document: Document,
    place: int,
    message: bytes,
    checks: Checks | None,
    error: str | None = None,
) -> dict[str, Any]:
    rows = [] if checks is None else [own.tobytes().hex() for own in checks.ids]
    key = key_of(document)
    return {
        "document": name,
        "place": place,
        "check_secret": documents.identity(document.helpers[0].name).derive(CHECK_LABEL).hex(),
        "check_key": key.key.hex(),
        "key_digest": key.digest.hex(),
        "message": message.hex(),
        "ids": rows,
        "numbers": [] if checks is None else [numbers_of(own) for own in checks.numbers],
        "valid": None if checks is None else [row != INVALID for row in range(ROWS)],
        "error": error,
    }
