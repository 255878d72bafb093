"""Payloads: what one helper finds in a report once it is opened. Made by browsers, read by helpers.

payload = version, length, body, zeros            all payloads of a purpose have one size
body    = {salt, secret, columns}
secret  = field elements for helper 0, a 16-byte seed for the others
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from maskedlark.core import field, sharing
from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.errors import (
    BadPadding,
    DoesNotFit,
    NotDeclared,
    NotInField,
    Truncated,
    UnsupportedVersion,
    WrongColumnHash,
    WrongLength,
)
from maskedlark.wire import codec, columns
from maskedlark.wire.codec import Fields, Reader
from maskedlark.wire.columns import SALT_BYTES, Columns

SIZE_STEP = 32
"""Payload sizes are multiples of this."""
MAX_SIZE = 1 << 17
_HEAD = struct.Struct(">BI")
HEAD_BYTES = _HEAD.size
LENGTH = slice(1, HEAD_BYTES)
"""Where a payload states the length of its body, big-endian."""
_BODY = Fields("salt", "secret", "columns")


class Payload(NamedTuple):
    """The open columns, and this helper's share or its seed."""

    columns: Columns
    secret: bytes

    def __repr__(self) -> str:
        return f"Payload({len(self.secret)} secret bytes)"


def body(salt: bytes, secret: bytes, encoded_columns: bytes) -> bytes:
    """A payload before padding. Run by the browser, once per helper: only the secret differs."""
    return _BODY.write(codec.octets(salt), codec.octets(secret), codec.octets(encoded_columns))


def decode(data: bytes, purpose: Purpose, place: int, column_hash: bytes) -> Payload:
    """A valid payload whose columns are those of the public part. Run by the helper."""
    reader = Reader(data)
    salt_key, secret_key, columns_key = reader.map(_BODY)
    salt, secret = reader.octets(salt_key, SALT_BYTES), reader.octets(secret_key)
    encoded = reader.octets(columns_key)
    reader.end()
    if columns.digest(encoded, salt, purpose) != column_hash:
        raise WrongColumnHash("the open columns are not those that the public part binds")
    decoded = columns.decode(encoded, purpose)
    _check_secret(secret, place, decoded.secrets())
    return Payload(decoded, secret)


def _check_secret(secret: bytes, place: int, count: int) -> None:
    expected = field.BYTES * count if place == 0 else sharing.SEED_BYTES
    if len(secret) != expected:
        raise WrongLength(f"the secret of helper {place} has {expected} bytes here, not {len(secret)}")
    # Plain integers: faster than an array for a handful of shares.
    if place == 0 and max(struct.unpack(f"<{count}Q", secret)) >= field.P:
        raise NotInField("a share is p or more")


def size(declared: Sequence[Measure | Model]) -> int:
    """The size of all payloads of a purpose: that of the largest record declared for it."""
    longest = max(_HEAD.size + _longest_body(each) for each in declared)
    if longest > MAX_SIZE:
        raise NotDeclared(f"a record would take {longest} bytes, more than {MAX_SIZE}: show fewer candidates")
    return -(-longest // SIZE_STEP) * SIZE_STEP


def _longest_body(declared: Measure | Model) -> int:
    secret = bytes(max(field.BYTES * declared.secrets(), sharing.SEED_BYTES))
    return len(body(bytes(SALT_BYTES), secret, columns.largest(declared).encode()))


def pad(data: bytes, to: int) -> bytes:
    """Version, length, body, zeros: to the size of all payloads of the purpose."""
    room = to - _HEAD.size - len(data)
    if room < 0:
        raise DoesNotFit(f"a record takes {-room} bytes more than the declared size of {to}")
    return _HEAD.pack(codec.VERSION, len(data)) + data + bytes(room)


def unpad(padded: bytes) -> bytes:
    """The body of a payload. Refuses lengths that do not fit and padding that is not zero."""
    if len(padded) < _HEAD.size:
        raise Truncated("a payload ends within its head")
    version, length = _HEAD.unpack_from(padded)
    if version != codec.VERSION:
        raise UnsupportedVersion(f"a payload of version {version}; this package speaks {codec.VERSION}")
    end = _HEAD.size + length
    if end > len(padded):
        raise Truncated("a payload ends before its body does")
    if any(padded[end:]):
        raise BadPadding("padding that is not all zero")
    return padded[_HEAD.size : end]
