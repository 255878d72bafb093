"""Reports: a public part, and a sealed payload for every helper. Made by browsers, opened by helpers.

    report = version, {public: bytes, payloads: [[key id, sealed], …]}      one payload per helper, in order
    public = version, {id, hour, origin, purpose, parameters, column_hash}
    part   = version, {key_id, public, sealed}                              what one helper is sent of it

The public part is sent as bytes: `info` binds exactly these, with the helper's name, place and key id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import NamedTuple

from maskedlark.core import sharing
from maskedlark.core.declared import Measure
from maskedlark.core.purpose import Purpose
from maskedlark.errors import (
    DecodeError,
    DuplicateKey,
    NotDeclared,
    OutOfRange,
    WrongHelper,
    WrongLength,
    WrongPurpose,
)
from maskedlark.wire import codec, payload
from maskedlark.wire.codec import Fields, Reader
from maskedlark.wire.columns import HASH_BYTES, Declared, Shape
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD, OpeningKey, SealingKey
from maskedlark.wire.payload import Payload

ID_BYTES = sharing.ID_BYTES
MAX_ORIGIN = 253
MAX_HOUR = (1 << 32) - 1
_REPORT = Fields("public", "payloads")
_PUBLIC = Fields("id", "hour", "origin", "purpose", "parameters", "column_hash")
_PART = Fields("key_id", "public", "sealed")
ID_START = 1 + len(_PUBLIC.head + _PUBLIC.keys[0] + codec.octets(bytes(ID_BYTES))) - ID_BYTES
ID_END = ID_START + ID_BYTES
_PAIR = codec.listed([b""] * 2)
_INFO = codec.listed([codec.text("maskedlark v1 report"), *[b""] * 4])
_PURPOSES = {str(purpose): purpose for purpose in Purpose}


class PublicPart(NamedTuple):
    """What the ad server can read of a report: nothing in it depends on what the user did."""

    id: bytes
    hour: int
    origin: str
    purpose: Purpose
    parameters: bytes
    """The digest of the parameter document that the report was made under."""
    column_hash: bytes

    def encode(self) -> bytes:
        """Run by the browser."""
        before, between = _frame(self.hour, self.origin, self.purpose, self.parameters)
        return before + self.id + between + self.column_hash


@lru_cache(maxsize=4096)
def _frame(hour: int, origin: str, purpose: Purpose, parameters: bytes) -> tuple[bytes, bytes]:
    """A public part without its first and last fields, id and column hash. Cached: many reports share it."""
    encoded = codec.VERSION_BYTE + _PUBLIC.write(
        codec.octets(bytes(ID_BYTES)),
        codec.number(hour),
        codec.text(origin),
        codec.text(purpose),
        codec.octets(parameters),
        codec.octets(bytes(HASH_BYTES)),
    )
    return encoded[:ID_START], encoded[ID_END:-HASH_BYTES]


class Report(NamedTuple):
    """A report as it is stored and sent."""

    public: bytes
    payloads: tuple[tuple[bytes, bytes], ...]
    """(key id, sealed payload), in the order of the document's helpers."""

    def encode(self) -> bytes:
        """Run by the browser."""
        pairs = [_PAIR + codec.octets(key_id) + codec.octets(sealed) for key_id, sealed in self.payloads]
        return codec.VERSION_BYTE + _REPORT.write(codec.octets(self.public), codec.listed(pairs))

    def part(self, place: int) -> bytes:
        """One helper's part of the report, without the other payloads. Run by the ad server."""
        if not 0 <= place < len(self.payloads):
            raise WrongHelper(f"the report has no payload for helper {place}")
        key_id, sealed = self.payloads[place]
        return codec.VERSION_BYTE + _PART.write(
            codec.octets(key_id), codec.octets(self.public), codec.octets(sealed)
        )


@dataclass(frozen=True)
class Recipient:
    """A helper as the browser sees it: its name in the parameter document and its current key."""

    name: str
    key: SealingKey


def decode(data: bytes) -> Report:
    """Run by the ad server and by helpers. Checks the form; nothing is opened."""
    reader = Reader.message(data)
    public_key, payloads_key = reader.map(_REPORT)
    public = reader.octets(public_key)
    payloads = tuple([_pair(reader) for _ in reader.items(payloads_key, 2, sharing.MAX_HELPERS)])
    reader.end()
    if len({key_id for key_id, _ in payloads}) < len(payloads):
        raise DuplicateKey("two payloads are sealed to one key: one helper would hold two shares")
    plain, *others = {len(sealed) - OVERHEAD for _, sealed in payloads}
    if others or plain <= 0 or plain % payload.SIZE_STEP:
        raise WrongLength(
            f"the payloads of a report have one size, a multiple of {payload.SIZE_STEP}, sealed"
        )
    return Report(public, payloads)


def _pair(reader: Reader) -> tuple[bytes, bytes]:
    reader.items(b"", 2, 2)
    return reader.octets(b"", KEY_ID_BYTES), reader.octets(b"")


def decode_public(data: bytes) -> PublicPart:
    """Run by everyone who handles a report. Cached apart from id and column hash, which alone vary."""
    blank = data[:ID_START] + bytes(ID_BYTES) + data[ID_END:-HASH_BYTES] + bytes(HASH_BYTES)
    try:
        shared = _read_public(blank)
    except DecodeError:
        return _read_public(data)  # Errors must refer to the original message.
    return PublicPart(data[ID_START:ID_END], *shared[1:-1], data[-HASH_BYTES:])


@lru_cache(maxsize=4096)
def _read_public(data: bytes) -> PublicPart:
    reader = Reader.message(data)
    id_key, hour, origin, purpose, parameters, column_hash = reader.map(_PUBLIC)
    public = PublicPart(
        reader.octets(id_key, ID_BYTES),
        reader.natural(hour, MAX_HOUR),
        reader.text(origin, MAX_ORIGIN),
        _purpose(reader.text(purpose, 16)),
        reader.octets(parameters, HASH_BYTES),
        reader.octets(column_hash, HASH_BYTES),
    )
    reader.end()
    return public


def _purpose(name: str) -> Purpose:
    if name not in _PURPOSES:
        raise OutOfRange(f"the purpose of a report is one of {', '.join(_PURPOSES)}")
    return _PURPOSES[name]


def seal(public: PublicPart, bodies: Sequence[bytes], to: Sequence[Recipient], size: int) -> Report:
    """A whole report: one payload per helper, all of one size. Run by the browser."""
    if len(bodies) != len(to):
        raise NotDeclared(f"{len(bodies)} payloads for {len(to)} helpers")
    encoded = public.encode()
    sealed = []
    for place, (recipient, body) in enumerate(zip(to, bodies, strict=True)):
        bound = info(encoded, recipient.name, place, recipient.key.key_id)
        sealed.append((recipient.key.key_id, recipient.key.seal(payload.pad(body, size), bound)))
    return Report(encoded, tuple(sealed))


def info(public: bytes, helper: str, place: int, key_id: bytes) -> bytes:
    """Everything public that a payload is bound to."""
    return _INFO + codec.octets(public) + _addressee(helper, place, key_id)


@lru_cache(maxsize=1024)
def _addressee(helper: str, place: int, key_id: bytes) -> bytes:
    return codec.text(helper) + codec.number(place) + codec.octets(key_id)


class Addressed(NamedTuple):
    """What is needed to open a part that is addressed to us."""

    public: PublicPart
    key: OpeningKey
    sealed: bytes
    info: bytes

    def open(self) -> bytes:
        """The padded payload. HPKE fails if anything public or sealed was changed."""
        return self.key.open(self.sealed, self.info)


@dataclass(frozen=True)
class Opener:
    """Opens a helper's parts of reports, by its name, its place, its keys by id, and what is declared.

    Accepts reports of any ad server and document; `acceptance.DatasetOpener` accepts those of one dataset.
    `address` and `read` are separate methods, so that `decrypt.py` can do each for a whole batch.
    """

    helper: str
    place: int
    keys: Mapping[bytes, OpeningKey]
    declared: Declared
    size: int
    """Of all payloads of this purpose."""

    @cached_property
    def purpose(self) -> Purpose:
        """The purpose that reports must have."""
        return Purpose.AGGREGATE if isinstance(self.declared, Measure) else Purpose.TRAIN

    @cached_property
    def shape(self) -> Shape:
        """The shape that open columns must have."""
        return Shape(self.declared)

    @cached_property
    def example(self) -> PublicPart | None:
        """A public part from which others differ only in id, hour and column hash; None if there is none."""
        return None

    def open(self, part: bytes) -> tuple[PublicPart, Payload]:
        """The public part and our payload of an unchanged report. Refuses any other."""
        addressed = self.address(part)
        return addressed.public, self.read(addressed.open(), addressed.public.column_hash)

    def address(self, part: bytes) -> Addressed:
        """First stage: check that it is an acceptable report, sealed to one of our keys."""
        reader = Reader.message(part)
        key_id_key, public_key, sealed_key = reader.map(_PART)
        key_id, encoded = reader.octets(key_id_key, KEY_ID_BYTES), reader.octets(public_key)
        sealed = reader.octets(sealed_key)
        reader.end()
        public = decode_public(encoded)
        if len(sealed) != self.size + OVERHEAD:  # before anything is decrypted or decoded at that size
            raise WrongLength(f"a payload of other than the {self.size} bytes that all have")
        self.check(public)
        if key_id not in self.keys:
            raise WrongHelper(
                f"the payload is sealed to key {key_id.hex()}, which {self.helper} does not hold"
            )
        return Addressed(public, self.keys[key_id], sealed, info(encoded, self.helper, self.place, key_id))

    def check(self, public: PublicPart) -> None:
        """Check that the report is for our purpose."""
        if public.purpose is not self.purpose:
            raise WrongPurpose(f"a report to {public.purpose}, among those to {self.purpose}")

    def read(self, padded: bytes, column_hash: bytes) -> Payload:
        """Last stage: a valid payload whose columns are those of the public part, and as declared."""
        decoded = payload.decode(payload.unpad(padded), self.purpose, self.place, column_hash)
        self.shape.check(decoded.columns)
        return decoded

    def __reduce__(self) -> tuple[type["Opener"], tuple[object, ...]]:
        """Pickled without caches, for another process of the same helper."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self))
