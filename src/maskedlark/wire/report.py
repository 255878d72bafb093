"""Reports: a public part, and a sealed payload for every helper. Made by browsers, opened by helpers.

    report  = version, {public: bytes, payloads: [[key id, sealed], …]}      one payload a helper, in order
    public  = version, {id, hour, origin, purpose, parameters, column_hash}

The public part travels as bytes: `info` binds exactly these, with the helper's name, place and key id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared, OutOfRange, WrongHelper, WrongLength, WrongPurpose
from maskedlark.wire import codec, payload
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD, OpeningKey, SealingKey
from maskedlark.wire.payload import Payload

ID_BYTES = sharing.ID_BYTES
MOST_ORIGIN = 253
MOST_HOUR = (1 << 32) - 1
_LABEL = "maskedlark v1 report"
_PURPOSES = {str(purpose): purpose for purpose in Purpose}


@dataclass(frozen=True)
class PublicPart:
    """What the ad server can read of a report: nothing that depends on what the user did."""

    id: bytes
    hour: int
    origin: str
    purpose: Purpose
    parameters: bytes
    """The digest of the parameter document that the report was made under."""
    column_hash: bytes

    def encode(self) -> bytes:
        """Run by the browser."""
        return codec.encode_message(
            {
                "id": self.id,
                "hour": self.hour,
                "origin": self.origin,
                "purpose": str(self.purpose),
                "parameters": self.parameters,
                "column_hash": self.column_hash,
            }
        )


@dataclass(frozen=True)
class Report:
    """A report as it is stored and sent."""

    public: bytes
    payloads: tuple[tuple[bytes, bytes], ...]
    """(key id, sealed payload), in the order of the document's helpers."""

    def encode(self) -> bytes:
        """Run by the browser."""
        return codec.encode_message({"public": self.public, "payloads": [list(pair) for pair in self.payloads]})


@dataclass(frozen=True)
class Recipient:
    """A helper as the browser sees it: its name in the parameter document and its current key."""

    name: str
    key: SealingKey


def decode(data: bytes) -> Report:
    """Run by the ad server and by helpers. Form alone: nothing is opened."""
    item = codec.fields(codec.decode_message(data), "public", "payloads")
    payloads = [codec.exact_list(pair, 2) for pair in codec.typed(item["payloads"], list)]
    if not 2 <= len(payloads) <= sharing.MOST_HELPERS:
        raise WrongLength(f"a report has payloads for 2 to {sharing.MOST_HELPERS} helpers, not {len(payloads)}")
    pairs = tuple((codec.exactly(key_id, KEY_ID_BYTES), codec.typed(sealed, bytes)) for key_id, sealed in payloads)
    sizes = {len(sealed) for _, sealed in pairs}
    if len(sizes) != 1 or (min(sizes) - OVERHEAD) % payload.SIZE_STEP or min(sizes) <= OVERHEAD:
        raise WrongLength("the payloads of a report have one size, a multiple of the declared step")
    return Report(codec.typed(item["public"], bytes), pairs)


def decode_public(data: bytes) -> PublicPart:
    """Run by everyone who handles a report."""
    item = codec.fields(
        codec.decode_message(data), "id", "hour", "origin", "purpose", "parameters", "column_hash"
    )
    purpose = codec.text(item["purpose"], 16)
    if purpose not in _PURPOSES:
        raise OutOfRange("the purpose of a report is 'aggregate' or 'train'")
    return PublicPart(
        id=codec.exactly(item["id"], ID_BYTES),
        hour=codec.natural(item["hour"], MOST_HOUR),
        origin=codec.text(item["origin"], MOST_ORIGIN),
        purpose=_PURPOSES[purpose],
        parameters=codec.exactly(item["parameters"], HASH_BYTES),
        column_hash=codec.exactly(item["column_hash"], HASH_BYTES),
    )


def seal(public: PublicPart, bodies: Sequence[bytes], to: Sequence[Recipient], size: int) -> Report:
    """A whole report: one payload a helper, all of one size. Run by the browser."""
    if len(bodies) != len(to):
        raise NotDeclared(f"{len(bodies)} payloads for {len(to)} helpers")
    encoded = public.encode()
    sealed = []
    for place, (recipient, body) in enumerate(zip(to, bodies, strict=True)):
        info = _info(encoded, recipient.name, place, recipient.key.key_id)
        sealed.append((recipient.key.key_id, recipient.key.seal(payload.pad(body, size), info)))
    return Report(encoded, tuple(sealed))


def _info(public: bytes, helper: str, place: int, key_id: bytes) -> bytes:
    """Everything public that a payload is bound to."""
    return codec.encode([_LABEL, public, helper, place, key_id])


@dataclass(frozen=True)
class Opener:
    """What a helper opens reports with: its name, its place among the helpers, and its keys by id."""

    helper: str
    place: int
    keys: Mapping[bytes, OpeningKey]

    def open(self, report: Report, purpose: Purpose) -> tuple[PublicPart, Payload]:
        """The public part and our payload of a report that nobody changed. Refuses any other."""
        public = decode_public(report.public)
        if public.purpose is not purpose:
            raise WrongPurpose(f"a report to {public.purpose}, in a dataset to {purpose}")
        if self.place >= len(report.payloads):
            raise WrongHelper(f"the report has no payload for helper {self.place}")
        key_id, sealed = report.payloads[self.place]
        if key_id not in self.keys:
            raise WrongHelper(f"the payload is sealed to key {key_id.hex()}, which {self.helper} does not hold")
        info = _info(report.public, self.helper, self.place, key_id)
        body = payload.unpad(self.keys[key_id].open(sealed, info))
        return public, payload.decode(body, purpose, self.place, public.column_hash)
