"""Ed25519 signatures over labelled messages: a signature for one use never verifies for another."""

import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from maskedlark.errors import BadSignature, WeakKey
from maskedlark.randomness import Randomness

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
_CURVE_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = {0, 1, _CURVE_PRIME - 1, _ORDER_8, _CURVE_PRIME - _ORDER_8}
"""The y coordinates of the eight points whose order divides eight."""
_QUOTE = 0x22
"""The first byte of every HTTP signature base (RFC 9421, 2.5): no label of ours may have this length."""


def _labelled(label: str, message: bytes) -> bytes:
    """The label's length comes first, so no label and message can be read as another pair."""
    encoded = label.encode()
    # Messages signed raw begin with a quotation mark (34), and this with the label's length. As no label is
    # 34 bytes long, no signature of one verifies as the other.
    assert len(encoded) != _QUOTE, "a label of 34 bytes could be read as an HTTP signature base"
    return bytes([len(encoded)]) + encoded + message


@dataclass(frozen=True)
class VerifyingKey:
    """The public half of an identity: 32 bytes that anyone may know."""

    public: bytes

    def __post_init__(self) -> None:
        # The top bit is the sign of the other coordinate.
        height = int.from_bytes(self.public, "little") % 2**255
        if len(self.public) != PUBLIC_BYTES or height >= _CURVE_PRIME:
            raise WeakKey("an Ed25519 key that is not in its canonical encoding of 32 bytes")
        if height in _SMALL_ORDER:  # Under such a key one signature verifies for every message.
            raise WeakKey("an Ed25519 key of small order")

    def verify(self, label: str, message: bytes, signature: bytes) -> None:
        """Return if the signature is valid; raise if it is not."""
        self._verify(_labelled(label, message), signature, f"the signature over this {label}")

    def verify_raw(self, message: bytes, signature: bytes) -> None:
        """The same without a label: for formats whose own base separates uses, like RFC 9421."""
        assert message[:1] == bytes([_QUOTE]), "only HTTP signature bases are signed without a label"
        self._verify(message, signature, "the signature")

    def _verify(self, message: bytes, signature: bytes, what: str) -> None:
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise BadSignature(f"{what} does not verify") from None

    def __repr__(self) -> str:
        return f"VerifyingKey({self.public.hex()})"


class SigningKey:
    """The secret half of an identity. Prints as its public half."""

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.verifying = VerifyingKey(self._key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, rng: Randomness) -> "SigningKey":
        """A fresh identity."""
        return cls(rng.bytes(32))

    def sign(self, label: str, message: bytes) -> bytes:
        """64 bytes that only this key can make for this label and message."""
        return self._key.sign(_labelled(label, message))

    def sign_raw(self, message: bytes) -> bytes:
        """The same without a label: for formats whose own base separates uses, like RFC 9421."""
        assert message[:1] == bytes([_QUOTE]), "only HTTP signature bases are signed without a label"
        return self._key.sign(message)

    def derive(self, label: str) -> bytes:
        """32 secret bytes that follow from this key and a label: the same for good, wherever the key is."""
        return hmac.digest(self._key.private_bytes_raw(), _labelled(label, b""), "sha256")

    def __repr__(self) -> str:
        return f"SigningKey(of {self.verifying!r})"
