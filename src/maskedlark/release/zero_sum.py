"""Masks that add up to zero over all helpers: with its mask, a helper's answer alone is uniform.

The ad server receives every helper's answer separately, and a share is uniform only where a record
contributes: without a mask one answer would reveal who is in a batch. So a helper sends share plus noise plus
mask. The masks come from the seeds that a dataset's helpers share, under a key that binds all that decides
the answer: if helpers differ in any of it, the sum of their numbers is meaningless. Run by helpers.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from maskedlark.core import field
from maskedlark.core.field import FieldArray

_KEY, _STREAM = b"maskedlark v2 answer mask key", b"maskedlark v2 answer mask"
_BLOCK = 1 << 13
"""This many numbers at a time stay in a core's cache: fresh memory would cost more than the cipher."""


def key(seeds: Sequence[bytes], *bound: bytes | Sequence[bytes]) -> bytes:
    """The key of one answer's masks: the same at every helper that answers the same.

    `seeds`: of all its datasets, in order. One key for all: masks of two datasets are never added.
    """
    digest = hashlib.sha256(_KEY)
    for part in (seeds, *bound):
        digest.update(_framed(part) if isinstance(part, bytes) else _framed(b"".join(map(_framed, part))))
    return digest.digest()


def masked(answer: FieldArray, of: bytes, place: int, helpers: int) -> FieldArray:
    """An answer plus this helper's mask. Helper i adds mask i, helper 0 subtracts them all."""
    masks = [Mask(of, place)] if place else [Mask(of, other) for other in range(1, helpers)]
    change, masked_answer = field.add if place else field.subtract, np.empty_like(answer)
    for start in range(0, len(answer), _BLOCK):
        part = answer[start : start + _BLOCK]
        for mask in masks:
            part = change(part, mask.next(len(part)))
        masked_answer[start : start + _BLOCK] = part
    return masked_answer


class Mask:
    """Mask i under a key: the words of its stream that are below p, upper three bits cleared, in order."""

    def __init__(self, of: bytes, place: int) -> None:
        own = hashlib.sha256(_STREAM + of + place.to_bytes(2, "big")).digest()
        self._stream = Cipher(AES(own), CTR(bytes(16))).encryptor()

    def next(self, count: int) -> FieldArray:
        """The next numbers."""
        words = np.frombuffer(self._stream.update(bytes(field.BYTES * count)), "<u8") & np.uint64(field.P)
        # A word is p once in 2^61, and then skipped: every number is uniform.
        if count and words.max() >= field.P:
            fine = words[words < np.uint64(field.P)].view(np.int64)
            return np.concatenate([fine, self.next(count - len(fine))])
        return words.view(np.int64)


def _framed(part: bytes) -> bytes:
    """A part preceded by its length: no two lists of parts make the same bytes."""
    return len(part).to_bytes(8, "big") + part
