"""Signed documents and the chain that they form: each is signed by the previous one's document key.

The first is signed by the document key that the parameter service's operator pinned for the origin. The
request key signs no document. The service countersigns, so that it cannot later deny what it published.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maskedlark.errors import BadSignature, BrokenChain, InvalidDocument, RolledBack
from maskedlark.parameters import document
from maskedlark.parameters.document import MAX_COMMAS, OLDER, Document, Origin
from maskedlark.wire.message import Hex64, Message
from maskedlark.wire.signatures import SigningKey, VerifyingKey

ORIGIN_LABEL = "maskedlark v2 parameter document"
SERVICE_LABEL = "maskedlark v2 published document"


class _Names(BaseModel):
    """A document's own origin and version; the rest is ignored."""

    model_config = ConfigDict(strict=True)

    origin: Origin
    version: Annotated[int, Field(ge=1, le=1 << 31)]


class _Format(BaseModel):
    """The format that a document states."""

    format: int


@dataclass(frozen=True)
class Signed:
    """A document in canonical bytes, signed by its origin and, once published, by the service."""

    body: bytes
    origin_signature: bytes
    service_signature: bytes | None = None

    def encode(self) -> bytes:
        """JSON for the wire: the document as text, so that exactly these bytes are verified."""
        message = {
            "document": self.body.decode(),
            "origin_signature": self.origin_signature.hex(),
            "service_signature": self.service_signature.hex() if self.service_signature else None,
        }
        return json.dumps(message, indent=1).encode()

    def open(self, document_key: VerifyingKey) -> Document:
        """The document, if its origin signed it with this key. Run by everyone."""
        document_key.verify(ORIGIN_LABEL, self.body, self.origin_signature)
        declared = document.decode(self.body)
        _refuse_request_key(declared, document_key)
        return declared

    def names(self) -> tuple[str, int]:
        """The claimed origin and version, decoded cheaply to find the key to verify with."""
        try:
            names = _Names.model_validate_json(self.body)
        except ValidationError:
            raise InvalidDocument("a document is JSON, with its origin and version") from None
        return names.origin, names.version

    def claimed(self) -> Document:
        """The document, unverified. Decoding is costly: for one's own, or what was verified before."""
        return document.decode(self.body)

    def published(self, service_key: VerifyingKey) -> None:
        """Refuse a document that the service did not countersign."""
        if self.service_signature is None:
            raise BadSignature("the parameter service has not countersigned this document")
        service_key.verify(SERVICE_LABEL, self.body + self.origin_signature, self.service_signature)


class Envelope(Message):
    """A signed document as JSON: the document as text, signatures in hexadecimal."""

    max_commas = MAX_COMMAS + 2
    document: str
    origin_signature: Hex64
    service_signature: Hex64 | None

    @classmethod
    def refusal(cls, why: str) -> InvalidDocument:
        """The error for what is no signed document."""
        return InvalidDocument(f"no signed document with signatures in lower-case hexadecimal: {why}")

    def signed(self) -> Signed:
        """Its bytes, not yet verified. Refuses an older format."""
        _refuse_older(body := self.document.encode())
        service = None if self.service_signature is None else bytes.fromhex(self.service_signature)
        return Signed(body, bytes.fromhex(self.origin_signature), service)


def sign(drafted: Document, document_key: SigningKey) -> Signed:
    """Run by the ad server, where its document key is: no other machine needs it."""
    _refuse_request_key(drafted, document_key.verifying)
    body = drafted.encode()
    return Signed(body, document_key.sign(ORIGIN_LABEL, body))


def _refuse_request_key(declared: Document, signer: VerifyingKey) -> None:
    """Refuse a signer that is online, whatever the previous document says."""
    if signer.public.hex() == declared.request_key:
        raise BadSignature("this is the request key, which signs no documents: sign with the document key")


def countersign(signed: Signed, service_key: SigningKey) -> Signed:
    """Run by the parameter service, after `follow`."""
    signature = service_key.sign(SERVICE_LABEL, signed.body + signed.origin_signature)
    return Signed(signed.body, signed.origin_signature, signature)


def decode(data: bytes) -> Signed:
    """A signed document off the wire, not yet verified."""
    return Envelope.decode(data).signed()


def _refuse_older(body: bytes) -> None:
    """Name the old format as the reason, before its signatures under other labels fail to verify."""
    with suppress(ValidationError):
        if (given := _Format.model_validate_json(body).format) in (1, 2):
            raise InvalidDocument(OLDER.format(given))


def follow(signed: Signed, before: Document | None, pinned: VerifyingKey) -> Document:
    """The document, if it is the next one of its chain. Run by the service before it publishes."""
    key = pinned if before is None else VerifyingKey(bytes.fromhex(before.document_key))
    declared = signed.open(key)
    if before is None:
        if declared.version != 1:
            raise BrokenChain(f"the first document of {declared.origin} is version 1, not {declared.version}")
        return declared
    if declared.origin != before.origin:
        raise BrokenChain(f"a document of {declared.origin} in the chain of {before.origin}")
    if declared.version <= before.version:
        raise RolledBack(
            f"version {declared.version} of {declared.origin}; version {before.version} is published already"
        )
    if declared.version > before.version + 1 or declared.previous != before.digest.hex():
        raise BrokenChain(
            f"version {declared.version} does not follow version {before.version} of {declared.origin}"
        )
    return declared


def verify(
    chain: Sequence[Signed], origin: str, pinned: VerifyingKey, service_key: VerifyingKey
) -> list[Document]:
    """Every document of an origin, from the first on. Run by browsers, helpers and auditors."""
    documents: list[Document] = []
    for signed in chain:
        signed.published(service_key)
        documents.append(follow(signed, documents[-1] if documents else None, pinned))
        if documents[-1].origin != origin:
            raise BrokenChain(f"a document of {documents[-1].origin}, not of {origin}")
    return documents
