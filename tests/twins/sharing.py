"""Additive sharing, one record and one number at a time."""

import hashlib
from collections.abc import Iterator, Sequence

P = 2**61 - 1


def words(label: bytes) -> Iterator[int]:
    """Words of a SHAKE128 stream, 61 bits each, without end."""
    size = 0
    while True:
        size += 8
        yield int.from_bytes(hashlib.shake_128(label).digest(size)[-8:], "little") % 2**61


def expand(seed: bytes, report_id: bytes, purpose: str, helper: int, count: int) -> list[int]:
    label = b"maskedlark v2 share" + {"aggregate": b"\1", "train": b"\2"}[purpose]
    label += bytes([helper]) + report_id + seed
    return first_below_p(words(label), count)


def first_below_p(stream: Iterator[int], count: int) -> list[int]:
    elements: list[int] = []
    while len(elements) < count:
        if (word := next(stream)) < P:
            elements.append(word)
    return elements


def explicit(secret: Sequence[int], seeds: Sequence[bytes], report_id: bytes, purpose: str) -> list[int]:
    share = list(secret)
    for helper, seed in enumerate(seeds, start=1):
        other = expand(seed, report_id, purpose, helper, len(secret))
        share = [(mine - theirs) % P for mine, theirs in zip(share, other, strict=True)]
    return share
