"""Masks on answers, one number at a time: AES-256 in counter mode by its definition, a block at a time."""

import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

P = 2**61 - 1


def framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part


def key(seeds: Sequence[bytes], *bound: bytes | Sequence[bytes]) -> bytes:
    parts = [part if isinstance(part, bytes) else b"".join(map(framed, part)) for part in (seeds, *bound)]
    return hashlib.sha256(b"maskedlark v2 answer mask key" + b"".join(map(framed, parts))).digest()


def mask(of: bytes, place: int, count: int) -> list[int]:
    own = hashlib.sha256(b"maskedlark v2 answer mask" + of + place.to_bytes(2, "big")).digest()
    # One block of the cipher for every two numbers: the counter, from 0 on, 16 bytes, the high byte first.
    cipher, found, number = Cipher(AES(own), ECB()).encryptor(), list[int](), 0
    while len(found) < count:
        block = cipher.update(number.to_bytes(16, "big"))
        words = [int.from_bytes(block[at : at + 8], "little") % 2**61 for at in (0, 8)]
        found += [word for word in words if word != P]
        number += 1
    return found[:count]


def masked(answer: Sequence[int], of: bytes, place: int, helpers: int) -> list[int]:
    own = [mask(of, other, len(answer)) for other in range(1, helpers)]
    if place:
        return [(number + more) % P for number, more in zip(answer, own[place - 1], strict=True)]
    return [(number - sum(all_of)) % P for number, *all_of in zip(answer, *own, strict=True)]
