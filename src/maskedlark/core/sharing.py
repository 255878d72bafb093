"""Additive secret sharing, the paper's algorithm 1: browsers split, helpers compute, the ad server combines.

Share 0 is explicit. Shares 1 … N-1 are expanded from 16-byte seeds, so a report is small for all helpers but
one. Any N-1 shares are uniform whatever the secret is: without share 0 they are independent SHAKE128 streams,
and with it the missing one still hides everything, like a one-time pad.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness

SEED_BYTES = 16
ID_BYTES = 16
MAX_HELPERS = 255
_DOMAIN = b"maskedlark v2 share"

ByteRows = NDArray[np.uint8]
"""One row per record: report ids or seeds, 16 bytes each."""


@dataclass(frozen=True, repr=False)
class Shares:
    """All shares of n secrets of c numbers each, as the browser makes them."""

    explicit: FieldArray
    """Helper 0's: (n, c)."""
    seeds: tuple[ByteRows, ...]
    """Helper 1's, 2's, …: (n, 16) each."""

    def carried(self) -> list[ByteRows]:
        """What every record's payload carries, by helper: elements for helper 0, a seed for the others."""
        explicit = byte_rows(field.to_bytes(self.explicit), field.BYTES * self.explicit.shape[1])
        return [explicit, *self.seeds]


def split(secrets: FieldArray, ids: ByteRows, purpose: Purpose, helpers: int, rng: Randomness) -> Shares:
    """Share n secrets among N helpers. Run by the browser, once per report (algorithm 1)."""
    if not 2 <= helpers <= MAX_HELPERS:
        raise NotDeclared(f"a secret is shared among 2 to {MAX_HELPERS} helpers, not {helpers}")
    records, count = secrets.shape
    seeds = tuple(random_rows(records, SEED_BYTES, rng) for _ in range(1, helpers))
    explicit = secrets
    for helper, seed in enumerate(seeds, start=1):
        explicit = field.subtract(explicit, expand(seed, ids, purpose, helper, count))
    return Shares(explicit, seeds)


def expand(seeds: ByteRows, ids: ByteRows, purpose: Purpose, helper: int, count: int) -> FieldArray:
    """The shares of seeds, many records at once: (n, count). Run by helpers 1 … N-1.

    The label binds version, purpose, helper and report, so a seed replayed elsewhere expands to
    something unrelated. Its parts have fixed width or a length prefix, so a label has only one reading.
    """
    head = _DOMAIN + purpose.byte + bytes([helper])
    return streams(head, np.concatenate([ids, seeds], axis=1), count)


def streams(head: bytes, rows: ByteRows, count: int, least: int = 0) -> FieldArray:
    """The first `count` elements from `least` up of every row's SHAKE128 stream after a head: (n, count)."""
    labels, width, shake = rows.tobytes(), rows.shape[1], hashlib.shake_128
    # The only loop over records: a hash is one call each.
    digests = [
        shake(head + labels[i : i + width]).digest(field.BYTES * count) for i in range(0, len(labels), width)
    ]
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(rows), count) & np.uint64(field.P)
    elements = words.view(np.int64)
    # A masked word equals p once in 2^61: only then does the row need more of its stream.
    for row in np.flatnonzero(((elements == field.P) | (elements < least)).any(axis=1)):
        elements[row] = _from_stream(head + rows[row].tobytes(), count, least)
    return elements


def _from_stream(label: bytes, count: int, least: int) -> list[int]:
    """The first elements of a stream that are below p and not below `least`, by rejection."""
    spare = 1
    while True:
        stream = hashlib.shake_128(label).digest(field.BYTES * (count + spare))
        words = np.frombuffer(stream, dtype="<u8") & np.uint64(field.P)
        accepted = words[(words < np.uint64(field.P)) & (words >= np.uint64(least))]
        if len(accepted) >= count:
            return [int(word) for word in accepted[:count]]
        spare *= 2


def recover(secrets: ByteRows, ids: ByteRows, purpose: Purpose, helper: int, count: int) -> FieldArray:
    """One helper's shares of many records, from what payloads carry: the inverse of `Shares.carried`."""
    if helper == 0:
        return field.from_bytes(secrets.tobytes()).reshape(len(secrets), count)
    return expand(secrets, ids, purpose, helper, count)


def combine(shares: Sequence[FieldArray]) -> FieldArray:
    """The secret, or the answer, that the helpers' shares add up to. Run by the ad server."""
    return reduce(field.add, shares)


def random_rows(rows: int, width: int, rng: Randomness) -> ByteRows:
    """Fresh ids, salts or seeds: one row per record."""
    return byte_rows(rng.bytes(rows * width), width)


def cut(data: bytes, width: int) -> list[bytes]:
    """Bytes as pieces of a fixed width, one per record."""
    return [data[i : i + width] for i in range(0, len(data), width)]


def byte_rows(data: bytes, width: int) -> ByteRows:
    """Bytes as rows of a fixed width."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
