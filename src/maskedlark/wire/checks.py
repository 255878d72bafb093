"""The check message: what one helper publishes of a chunk's reports, before they are frozen.

    message = version (1 byte), body (a vector with 4 bytes of length), signature (64),
              certificate (a vector, 2), signature of the certificate (64)
    body    = version (1), place (1), time (8), origin (a vector, 1), parameters (32), SHA-256 of the check
              key (32), rows
    row     = report id (16), share of f(t) (8), share of g(t) (8)
    relay   = version (1), messages of all other helpers by place (vectors, 4)

Rows are of the parts that the helper accepted, in their order. The numbers tell nothing of a secret: they
follow from the helper's own shares, its document and the report id alone (`core/validity.py`). But browsers
do not get them: who made a report computes its point from them, and could forge another under its id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.errors import NotInField, WrongLength
from maskedlark.wire import binary
from maskedlark.wire.binary import Reader, number, vector
from maskedlark.wire.datasets import MAX_PARTS
from maskedlark.wire.errors import DuplicateId
from maskedlark.wire.keys import MAX_SECONDS
from maskedlark.wire.report import MAX_ORIGIN
from maskedlark.wire.signatures import SIGNATURE_BYTES

CHECKS_TYPE = "application/vnd.maskedlark.checks"
NUMBERS = 2
ROW_BYTES = ID_BYTES + NUMBERS * field.BYTES
MAX_CERTIFICATE = 1 << 10
MAX_HELPERS = 16
MAX_MESSAGE = MAX_PARTS * ROW_BYTES + (1 << 11)
MAX_RELAY = (MAX_HELPERS - 1) * (MAX_MESSAGE + 4) + 1
_DIGEST_BYTES = 32


@dataclass(frozen=True, repr=False)
class Checks:
    """One helper's numbers for the reports of a chunk, and what they were made under."""

    place: int
    time: int
    origin: str
    parameters: bytes
    key_digest: bytes
    ids: ByteRows
    """(n, 16)."""
    numbers: FieldArray
    """(n, 2): shares of f(t) and g(t)."""

    def encode(self) -> bytes:
        """What is signed."""
        head = number(self.place, 1) + number(self.time, 8) + vector(self.origin.encode(), 1)
        written = self.numbers.astype("<i8").view(np.uint8).reshape(len(self.ids), NUMBERS * field.BYTES)
        rows = np.concatenate([self.ids, written], axis=1)
        return binary.VERSION_BYTE + head + self.parameters + self.key_digest + rows.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a body. Refuses a number of p or more, and a report that is there twice."""
        reader = Reader.message(data, "a check message")
        place, time = reader.number(1, MAX_HELPERS - 1), reader.number(8, MAX_SECONDS)
        origin = reader.text(1, MAX_ORIGIN)
        parameters, key_digest = reader.octets(_DIGEST_BYTES), reader.octets(_DIGEST_BYTES)
        if reader.left % ROW_BYTES or reader.left > MAX_PARTS * ROW_BYTES:
            raise WrongLength(f"a check message has up to {MAX_PARTS} rows of {ROW_BYTES} bytes")
        rows = np.frombuffer(reader.octets(reader.left), np.uint8).reshape(-1, ROW_BYTES)
        ids = np.ascontiguousarray(rows[:, :ID_BYTES])
        words = np.ascontiguousarray(rows[:, ID_BYTES:]).view("<u8").astype(np.uint64)
        if (words >= np.uint64(field.P)).any():
            raise NotInField("a check message holds a number of p or more")
        if len(np.unique(ids.view(f"S{ID_BYTES}"))) < len(ids):
            raise DuplicateId("a check message holds a report twice")
        return cls(place, time, origin, parameters, key_digest, ids, words.view(np.int64))


@dataclass(frozen=True)
class SignedChecks:
    """A check message with its signature, and the certificate of the key that made it."""

    body: bytes
    signature: bytes
    certificate: str
    certified: bytes
    """The identity's signature of the certificate."""

    def encode(self) -> bytes:
        """The message that the helper answers with."""
        certificate = vector(self.certificate.encode(), 2)
        return binary.VERSION_BYTE + vector(self.body, 4) + self.signature + certificate + self.certified

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode; nothing is verified yet."""
        reader = Reader.message(data, "a signed check message")
        body, signature = reader.vector(4, 1, MAX_MESSAGE), reader.octets(SIGNATURE_BYTES)
        certificate, certified = reader.text(2, MAX_CERTIFICATE), reader.octets(SIGNATURE_BYTES)
        reader.end()
        return cls(body, signature, certificate, certified)


def encode_relay(messages: Sequence[bytes]) -> bytes:
    """Check messages of all helpers but one, by place. Run by the ad server."""
    return binary.VERSION_BYTE + binary.vectors(messages, 4)


def decode_relay(data: bytes) -> list[bytes]:
    """The relayed messages. Run by helpers."""
    reader = Reader.message(data, "a relay of check messages")
    return reader.vectors(4, MAX_HELPERS - 1, MAX_MESSAGE)
