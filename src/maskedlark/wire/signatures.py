"""Ed25519 signatures over labelled messages: a signature for one use never verifies for another."""

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
"""The heights (y) of the eight points whose order divides eight."""


def _labelled(label: str, message: bytes) -> bytes:
    """The label's length stands before it, so no label and message read as another pair."""
    encoded = label.encode()
    return bytes([len(encoded)]) + encoded + message


@dataclass(frozen=True)
class VerifyingKey:
    """The public half of an identity: 32 bytes that anyone may know."""

    public: bytes

    def __post_init__(self) -> None:
        height = (
            int.from_bytes(self.public, "little") % 2**255
        )  # the sign of the other coordinate is the top bit
        if len(self.public) != PUBLIC_BYTES or height >= _CURVE_PRIME:
            raise WeakKey("an Ed25519 key that is not in its canonical encoding of 32 bytes")
        if height in _SMALL_ORDER:  # Under such a key one signature fits every message.
            raise WeakKey("an Ed25519 key of small order")

    def verify(self, label: str, message: bytes, signature: bytes) -> None:
        """Return if the signature holds; raise if it does not."""
        try:
            key = Ed25519PublicKey.from_public_bytes(self.public)
            key.verify(signature, _labelled(label, message))
        except (InvalidSignature, ValueError):
            raise BadSignature(f"the signature over this {label} does not verify") from None

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

    def __repr__(self) -> str:
        return f"SigningKey(of {self.verifying!r})"
