"""HPKE (RFC 9180), base mode, X25519 / HKDF-SHA256 / AES-128-GCM, with the ephemeral key as an argument.

The package seals with the library's own HPKE, which draws that key itself. This twin makes sealed vectors
repeatable and is held against the RFC's own test vector.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEM_SUITE = b"KEM" + (0x0020).to_bytes(2, "big")
SUITE = b"HPKE" + b"".join(number.to_bytes(2, "big") for number in (0x0020, 0x0001, 0x0001))


def _extract(salt: bytes, suite: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, hashlib.sha256)


def _expand(key: bytes, suite: bytes, label: bytes, info: bytes, size: int) -> bytes:
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    block, output = b"", b""
    for count in range(1, -(-size // 32) + 1):
        block = hmac.digest(key, block + labelled + bytes([count]), hashlib.sha256)
        output += block
    return output[:size]


def seal(plaintext: bytes, public: bytes, info: bytes, ephemeral: bytes, aad: bytes = b"") -> bytes:
    secret = X25519PrivateKey.from_private_bytes(ephemeral)
    encapsulated = secret.public_key().public_bytes_raw()
    shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    extracted = _extract(b"", KEM_SUITE, b"eae_prk", shared)
    kem_key = _expand(extracted, KEM_SUITE, b"shared_secret", encapsulated + public, 32)
    context = b"\0" + _extract(b"", SUITE, b"psk_id_hash", b"") + _extract(b"", SUITE, b"info_hash", info)
    schedule = _extract(kem_key, SUITE, b"secret", b"")
    key = _expand(schedule, SUITE, b"key", context, 16)
    nonce = _expand(schedule, SUITE, b"base_nonce", context, 12)
    return encapsulated + AESGCM(key).encrypt(nonce, plaintext, aad)
