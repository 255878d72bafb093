"""HPKE (RFC 9180) as reports use it: base mode, X25519, HKDF-SHA256, AES-128-GCM, one message per context.

Everything public about a report is bound through `info`: a payload opens only with exactly the public part,
helper and key that it was sealed for.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from maskedlark.errors import WeakKey
from maskedlark.randomness import Randomness
from maskedlark.wire.errors import CannotOpen

PUBLIC_BYTES = 32
KEY_ID_BYTES = 16
OVERHEAD = 32 + 16
"""What sealing adds: the encapsulated key before the ciphertext, the tag after it."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_CURVE_PRIME = 2**255 - 19
_PROBE = X25519PrivateKey.from_private_bytes(bytes([1] * 32))
"""Not a secret: an exchange with it, or with any key, fails for a point of small order."""
_KEY_ID_DOMAIN = b"maskedlark v2 hpke key"


@lru_cache(maxsize=16)
def _point(public: bytes) -> X25519PublicKey:
    # Not kept in the key, which travels between processes.
    return X25519PublicKey.from_public_bytes(public)


@dataclass(frozen=True, repr=False)
class SealingKey:
    """A helper's public key, with which anyone seals to it. Its id is a hash, so it names only one key.

    Refuses a non-canonical encoding and keys of small order (whose shared secret anyone knows).
    """

    public: bytes

    def __post_init__(self) -> None:
        if len(self.public) != PUBLIC_BYTES or int.from_bytes(self.public, "little") >= _CURVE_PRIME:
            raise WeakKey("an X25519 key that is not in its canonical encoding of 32 bytes")
        try:
            _PROBE.exchange(X25519PublicKey.from_public_bytes(self.public))
        except ValueError:
            raise WeakKey("an X25519 key of small order") from None

    @cached_property
    def key_id(self) -> bytes:
        """The id of both halves."""
        return hashlib.sha256(_KEY_ID_DOMAIN + self.public).digest()[:KEY_ID_BYTES]

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """Encapsulated key and ciphertext. Run by the browser."""
        return _SUITE.encrypt(plaintext, _point(self.public), info)

    def __repr__(self) -> str:
        return f"SealingKey({self.key_id.hex()})"


class OpeningKey:
    """A helper's secret key. Prints as its id."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.sealing = SealingKey(self._key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, rng: Randomness) -> "OpeningKey":
        """A fresh key."""
        return cls(rng.bytes(32))

    @property
    def key_id(self) -> bytes:
        """The id of both halves."""
        return self.sealing.key_id

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """The plaintext, if nothing was changed. Run by the helper."""
        try:
            return _SUITE.decrypt(sealed, self._key, info)
        except (InvalidTag, ValueError):
            raise CannotOpen("the payload does not open: it, its place or public part was changed") from None

    def __reduce__(self) -> tuple[type["OpeningKey"], tuple[bytes]]:
        """Pickled as its secret bytes: only between processes of one helper on one machine, never stored."""
        return OpeningKey, (self._key.private_bytes_raw(),)

    def __repr__(self) -> str:
        return f"OpeningKey({self.key_id.hex()})"
