"""Randomness as an argument: every secret draw goes through one of these two sources.

Use only `SystemRandomness` for secrets. `FixedRandomness` makes vectors, tests and simulations repeatable.
"""

import hashlib
import os
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

UNIT_BITS = 53
"""The bits of a uniform float64 in [0, 1): those of its significand."""


class Randomness(ABC):
    """A source of uniform bytes, and the uniform draws that the protocol makes from them."""

    @abstractmethod
    def bytes(self, count: int) -> bytes:
        """`count` uniform bytes."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` uniform 64-bit numbers, little-endian in the byte stream."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """`count` uniform integers in [0, bound), by rejection, so without bias."""
        assert 1 <= bound <= 1 << 63
        mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
        drawn = self.words(count) & mask
        while (rejected := np.flatnonzero(drawn >= np.uint64(bound))).size:
            drawn[rejected] = self.words(rejected.size) & mask
        return drawn.astype(np.int64)

    def unit(self, count: int) -> NDArray[np.float64]:
        """`count` uniform floats in [0, 1), each a multiple of 2^-53."""
        return (self.words(count) >> np.uint64(64 - UNIT_BITS)).astype(np.float64) * 2.0**-UNIT_BITS


class SystemRandomness(Randomness):
    """The operating system's cryptographic generator. The source of every secret."""

    def bytes(self, count: int) -> bytes:
        """`count` bytes from the operating system."""
        return os.urandom(count)


class FixedRandomness(Randomness):
    """The SHAKE128 stream of a seed: the same draws every time. Never for secrets."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._calls = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes of the stream; each call starts a new block."""
        block = self._seed + self._calls.to_bytes(8, "big")
        self._calls += 1
        return hashlib.shake_128(block).digest(count)
