"""Key configurations: the HPKE keys that a helper publishes, signed by its identity, rotated at will.

No parameter document names an HPKE key, so a helper changes keys without touching one.
"""

from dataclasses import dataclass

from maskedlark.errors import BadSignature, NoValidKey, NotDeclared, OutOfRange, WrongLength
from maskedlark.wire import codec
from maskedlark.wire.hpke import PUBLIC_BYTES, SealingKey
from maskedlark.wire.signatures import PUBLIC_BYTES as IDENTITY_BYTES
from maskedlark.wire.signatures import SIGNATURE_BYTES, SigningKey, VerifyingKey

MOST_NAME = 64
MOST_ADDRESS = 512
MOST_KEYS = 64
MOST_SECONDS = (1 << 40) - 1
MOST_SEQUENCE = (1 << 32) - 1
_LABEL = "maskedlark v1 key configuration"


@dataclass(frozen=True)
class PublishedKey:
    """One public key and the time in which browsers may seal to it: from not_before until not_after."""

    key: SealingKey
    not_before: int
    not_after: int

    def valid_at(self, seconds: int) -> bool:
        """Whether a browser may seal to it at that moment."""
        return self.not_before <= seconds < self.not_after


@dataclass(frozen=True)
class KeyConfiguration:
    """What a helper publishes: who it is, where it answers, and its keys. `sequence` only ever grows."""

    helper: str
    identity: VerifyingKey
    address: str
    sequence: int
    keys: tuple[PublishedKey, ...]

    def current(self, seconds: int) -> SealingKey:
        """The key to seal to at that moment: of the valid ones, the one that came last."""
        valid = [published for published in self.keys if published.valid_at(seconds)]
        if not valid:
            raise NoValidKey(f"helper {self.helper} has published no key for this moment; fetch its keys again")
        return max(valid, key=lambda published: published.not_before).key

    def sign(self, identity: SigningKey) -> bytes:
        """The signed message that the helper publishes."""
        if identity.verifying != self.identity:
            raise NotDeclared(f"the configuration of {self.helper} names another identity than the signing key")
        body = codec.encode_message(self._fields())
        return codec.encode_message({"body": body, "signature": identity.sign(_LABEL, body)})

    def _fields(self) -> codec.Item:
        return {
            "helper": self.helper,
            "identity": self.identity.public,
            "address": self.address,
            "sequence": self.sequence,
            "keys": [[published.key.public, published.not_before, published.not_after] for published in self.keys],
        }


def verify(message: bytes, identity: VerifyingKey) -> KeyConfiguration:
    """The configuration that this identity signed. Run by browsers, helpers and the parameter service."""
    outer = codec.fields(codec.decode_message(message), "body", "signature")
    body = codec.typed(outer["body"], bytes)
    identity.verify(_LABEL, body, codec.exactly(outer["signature"], SIGNATURE_BYTES))
    configuration = _decode(body)
    if configuration.identity != identity:
        raise BadSignature(f"the configuration of {configuration.helper} names another identity than its signer")
    return configuration


def _decode(body: bytes) -> KeyConfiguration:
    item = codec.fields(codec.decode_message(body), "helper", "identity", "address", "sequence", "keys")
    keys = codec.typed(item["keys"], list)
    if not 1 <= len(keys) <= MOST_KEYS:
        raise WrongLength(f"a helper publishes 1 to {MOST_KEYS} keys, not {len(keys)}")
    return KeyConfiguration(
        helper=codec.text(item["helper"], MOST_NAME),
        identity=VerifyingKey(codec.exactly(item["identity"], IDENTITY_BYTES)),
        address=codec.text(item["address"], MOST_ADDRESS),
        sequence=codec.natural(item["sequence"], MOST_SEQUENCE),
        keys=tuple(_published(key) for key in keys),
    )


def _published(item: codec.Item) -> PublishedKey:
    public, not_before, not_after = codec.exact_list(item, 3)
    not_before, not_after = codec.natural(not_before, MOST_SECONDS), codec.natural(not_after, MOST_SECONDS)
    if not_before >= not_after:
        raise OutOfRange("a key ends before it begins")
    return PublishedKey(SealingKey(codec.exactly(public, PUBLIC_BYTES)), not_before, not_after)
