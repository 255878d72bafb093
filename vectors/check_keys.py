"""Vectors of check keys as the first helper seals them: messages that hold, and such as must be refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from maskedlark.parameters.document import Document
from maskedlark.release import shared_seed
from maskedlark.release.shared_seed import SeedMessage, SignedSeed
from maskedlark.wire.hpke import OpeningKey, SealingKey
from vectors import documents
from vectors.check_messages import key_of, signer_of
from vectors.good import NOW, FixedSealingKey, Vectors, secret_key

STRANGER = "helper-9.example"


def vectors() -> Vectors:
    """For every helper of a document, and what somebody may make of the message to one of them."""
    found: Vectors = []
    for name in ("two helpers, checked", "three helpers, checked"):
        document = documents.documents()[name]
        message = _made(document).encode()
        found += [_vector(name, document, place, message) for place in range(len(document.helpers))]
    return [*found, *(_vector(name, document, 1, data, "BadCheckKey") for data in _bad(document))]


def _made(
    document: Document, sealing: Mapping[str, SealingKey] | None = None, signer: int = 0, now: int = NOW
) -> SignedSeed:
    sealing = sealing or _sealing(*(each.name for each in document.helpers))
    key, signs = key_of(document).key, signer_of(document, signer)
    return shared_seed.make(key, document, None, sealing, signs, now)


def _sealing(*names: str) -> dict[str, SealingKey]:
    return {name: FixedSealingKey(OpeningKey(secret_key(name)).sealing.public) for name in names}


def _bad(document: Document) -> Iterator[bytes]:
    """What the ad server, another helper or the first one itself may send helper 1."""
    names, made = [each.name for each in document.helpers], _made(document)
    first, second, third = names
    message, data = made.claimed(), made.encode()
    # Signed by another helper; outside the time of its certificate; changed by whoever relays it.
    yield _made(document, signer=1).encode()
    yield _made(document, now=NOW + 3600).encode()
    yield made.model_copy(update={"message": made.message.replace(first, second)}).encode()
    yield made.model_copy(update={"signature": "00" * 64}).encode()
    # Of another origin or document; a seed's form, and a seed's label.
    yield _again(document, message.model_copy(update={"origin": "other.example"}))
    yield _again(document, message.model_copy(update={"parameters": "00" * 32}))
    yield _again(document, message.model_copy(update={"dataset": "00" * 32}))
    yield _again(document, message, shared_seed.LABEL)
    # For fewer recipients, or more.
    yield _made(document, _sealing(first, second)).encode()
    yield _made(document, _sealing(first, third)).encode()
    yield _made(document, _sealing(*names, STRANGER)).encode()
    # Sealed to a key that helper 1 does not have, or for another helper.
    yield _made(document, _sealing(*names) | {second: _sealing(STRANGER)[STRANGER]}).encode()
    own, others = message.sealed[second], message.sealed[third]
    swapped = own.model_copy(update={"seed": others.seed})
    yield _again(document, message.model_copy(update={"sealed": message.sealed | {second: swapped}}))
    # Not in its one form.
    yield data + b"\n"
    yield data[:-1]


def _again(document: Document, message: SeedMessage, label: str = shared_seed.CHECK_LABEL) -> bytes:
    """Whatever stands in it, signed by the first helper."""
    key, certificate = signer_of(document, 0)
    body = message.encode()
    signature = key.sign(label, body).hex()
    return SignedSeed(message=body.decode(), signature=signature, certificate=certificate).encode()


def _vector(
    name: str, document: Document, place: int, message: bytes, error: str | None = None
) -> dict[str, Any]:
    return {
        "document": name,
        "place": place,
        "secret_key": secret_key(document.helpers[place].name).hex(),
        "message": message.decode(),
        "check_key": None if error else key_of(document).key.hex(),
        "error": error,
    }
