"""Key configurations: the HPKE keys that a helper publishes, signed by its identity, rotated at will.

No parameter document names an HPKE key, so a helper changes keys without touching one.
"""

from dataclasses import dataclass

from maskedlark.errors import BadSignature, DuplicateKey, NotDeclared, NoValidKey, OutOfRange, RolledBack
from maskedlark.wire import codec
from maskedlark.wire.codec import Fields, Reader
from maskedlark.wire.hpke import PUBLIC_BYTES, SealingKey
from maskedlark.wire.signatures import PUBLIC_BYTES as IDENTITY_BYTES
from maskedlark.wire.signatures import SIGNATURE_BYTES, SigningKey, VerifyingKey

MAX_NAME = 64
MAX_ADDRESS = 512
MAX_KEYS = 64
MAX_SECONDS = (1 << 40) - 1
MAX_SEQUENCE = (1 << 32) - 1
_LABEL = "maskedlark v1 key configuration"
_SIGNED = Fields("body", "signature")
_CONFIGURATION = Fields("keys", "helper", "address", "identity", "sequence")


@dataclass(frozen=True)
class PublishedKey:
    """One public key, and when browsers may seal to it: from not_before until not_after."""

    key: SealingKey
    not_before: int
    not_after: int

    def encode(self) -> bytes:
        """Public key, start, end."""
        parts = [codec.octets(self.key.public), codec.number(self.not_before), codec.number(self.not_after)]
        return codec.listed(parts)

    def valid_at(self, seconds: int) -> bool:
        """Whether a browser may seal to it at that time."""
        return self.not_before <= seconds < self.not_after


@dataclass(frozen=True)
class KeyConfiguration:
    """What a helper publishes: its name, its address and its keys. `sequence` only ever grows."""

    helper: str
    identity: VerifyingKey
    address: str
    sequence: int
    keys: tuple[PublishedKey, ...]

    def current(self, seconds: int) -> SealingKey:
        """The key to seal to at that time: of the valid ones, the newest."""
        valid = [published for published in self.keys if published.valid_at(seconds)]
        if not valid:
            raise NoValidKey(
                f"helper {self.helper} has published no key for this moment; fetch its keys again"
            )
        return max(reversed(valid), key=lambda published: published.not_before).key

    def sign(self, identity: SigningKey) -> bytes:
        """The signed message that the helper publishes."""
        if identity.verifying != self.identity:
            raise NotDeclared(
                f"the configuration of {self.helper} names another identity than the signing key"
            )
        body = self.encode()
        return _signed(body, identity.sign(_LABEL, body))

    def encode(self) -> bytes:
        """What is signed."""
        return codec.VERSION_BYTE + _CONFIGURATION.write(
            codec.listed([published.encode() for published in self.keys]),
            codec.text(self.helper),
            codec.text(self.address),
            codec.octets(self.identity.public),
            codec.number(self.sequence),
        )


def _signed(body: bytes, signature: bytes) -> bytes:
    return codec.VERSION_BYTE + _SIGNED.write(codec.octets(body), codec.octets(signature))


def verify(message: bytes, helper: str, identity: VerifyingKey, least_sequence: int = 0) -> KeyConfiguration:
    """The configuration that this helper signed, if not rolled back. Run by every party that reads keys."""
    reader = Reader.message(message)
    body_key, signature_key = reader.map(_SIGNED)
    body, signature = reader.octets(body_key), reader.octets(signature_key, SIGNATURE_BYTES)
    reader.end()
    identity.verify(_LABEL, body, signature)
    configuration = _decode(body)
    if configuration.identity != identity:
        raise BadSignature(
            f"the configuration of {configuration.helper} names another identity than its signer"
        )
    if configuration.helper != helper:
        raise BadSignature(f"the configuration is of {configuration.helper}, not of {helper}")
    if configuration.sequence < least_sequence:
        raise RolledBack(f"an older configuration of {helper} than one that was seen before")
    return configuration


def _decode(body: bytes) -> KeyConfiguration:
    reader = Reader.message(body)
    keys, helper, address, identity, sequence = reader.map(_CONFIGURATION)
    published = tuple([_published(reader) for _ in reader.items(keys, 1, MAX_KEYS)])
    configuration = KeyConfiguration(
        keys=published,
        helper=reader.text(helper, MAX_NAME),
        address=reader.text(address, MAX_ADDRESS),
        identity=VerifyingKey(reader.octets(identity, IDENTITY_BYTES)),
        sequence=reader.natural(sequence, MAX_SEQUENCE),
    )
    reader.end()
    if len({each.key for each in published}) < len(published):
        raise DuplicateKey("a key is published twice")
    return configuration


def _published(reader: Reader) -> PublishedKey:
    reader.items(b"", 3, 3)
    public = reader.octets(b"", PUBLIC_BYTES)
    not_before, not_after = reader.natural(b"", MAX_SECONDS), reader.natural(b"", MAX_SECONDS)
    if not_before >= not_after:
        raise OutOfRange("a key ends before it begins")
    return PublishedKey(SealingKey(public), not_before, not_after)
