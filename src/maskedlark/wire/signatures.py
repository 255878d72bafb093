"""Ed25519 signatures over labelled messages: a signature for one use never verifies for another."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from maskedlark.errors import BadSignature
from maskedlark.randomness import Randomness

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64


def _labelled(label: str, message: bytes) -> bytes:
    """The label's length stands before it, so no label and message read as another pair."""
    encoded = label.encode()
    return bytes([len(encoded)]) + encoded + message


@dataclass(frozen=True)
class VerifyingKey:
    """The public half of an identity: 32 bytes that anyone may know."""

    public: bytes

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
