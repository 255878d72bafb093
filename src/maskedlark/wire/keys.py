"""Key configurations: the HPKE keys that a helper publishes, signed by its identity, rotated at will.

    signed = version (1 byte), body (a vector with 2 bytes of length), signature (64)
    body   = version (1), identity (32), sequence (4), helper (vector, 1), address (vector, 2), keys
    key    = public key (32), not before (8), not after (8)                    seconds since 1970

No parameter document names an HPKE key, so a helper changes keys without touching one.
"""

from dataclasses import dataclass

from maskedlark.errors import BadSignature, NotDeclared, RolledBack, WrongLength
from maskedlark.wire import binary
from maskedlark.wire.binary import Reader, number, vector
from maskedlark.wire.errors import DuplicateKey, NoValidKey, OutOfRange
from maskedlark.wire.hpke import PUBLIC_BYTES, SealingKey
from maskedlark.wire.signatures import PUBLIC_BYTES as IDENTITY_BYTES
from maskedlark.wire.signatures import SIGNATURE_BYTES, SigningKey, VerifyingKey

KEYS_TYPE = "application/vnd.maskedlark.keys"
MAX_NAME = 64
MAX_ADDRESS = 512
MAX_KEYS = 64
MAX_SECONDS = (1 << 40) - 1
_LABEL = "maskedlark v2 key configuration"
_KEY_BYTES = PUBLIC_BYTES + 2 * 8
_MAX_BODY = (1 << 16) - 1


@dataclass(frozen=True)
class PublishedKey:
    """One public key, and when browsers may seal to it: from not_before until not_after."""

    key: SealingKey
    not_before: int
    not_after: int

    def encode(self) -> bytes:
        """Public key, start, end."""
        return self.key.public + number(self.not_before, 8) + number(self.not_after, 8)

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
            raise NotDeclared(f"the configuration of {self.helper} names another identity than this key")
        body = self.encode()
        return binary.VERSION_BYTE + vector(body, 2) + identity.sign(_LABEL, body)

    def encode(self) -> bytes:
        """What is signed."""
        named = vector(self.helper.encode(), 1) + vector(self.address.encode(), 2)
        keys = b"".join([published.encode() for published in self.keys])
        return binary.VERSION_BYTE + self.identity.public + number(self.sequence, 4) + named + keys


def verify(message: bytes, helper: str, identity: VerifyingKey, least_sequence: int = 0) -> KeyConfiguration:
    """The configuration that this helper signed, if not rolled back. Run by every party that reads keys."""
    reader = Reader.message(message, "a signed key configuration")
    body, signature = reader.vector(2, 1, _MAX_BODY), reader.octets(SIGNATURE_BYTES)
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
    reader = Reader.message(body, "a key configuration")
    identity, sequence = VerifyingKey(reader.octets(IDENTITY_BYTES)), reader.number(4)
    helper, address = reader.text(1, MAX_NAME), reader.text(2, MAX_ADDRESS)
    if not _KEY_BYTES <= reader.left <= MAX_KEYS * _KEY_BYTES:
        raise WrongLength(f"a key configuration has 1 to {MAX_KEYS} keys of {_KEY_BYTES} bytes")
    published = []
    while reader.left:
        published.append(_published(reader))
    if len({each.key for each in published}) < len(published):
        raise DuplicateKey("a key is published twice")
    return KeyConfiguration(helper, identity, address, sequence, tuple(published))


def _published(reader: Reader) -> PublishedKey:
    public = SealingKey(reader.octets(PUBLIC_BYTES))
    not_before, not_after = reader.number(8, MAX_SECONDS), reader.number(8, MAX_SECONDS)
    if not_before >= not_after:
        raise OutOfRange("a key ends before it begins")
    return PublishedKey(public, not_before, not_after)
