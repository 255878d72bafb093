"""Vectors over the prime field F_p, p = 2^61 - 1, one int64 per element. Run by every party.

It is the paper's ring Z/mZ with m prime (section 4.1.2). Everything secret lives here. An element is
canonical: 0 <= x < p. Inside, numbers are viewed as uint64, where wrapping is defined and where 2^61 = 1
turns every reduction into a shift, a mask and a minimum.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import FieldOverflow, NotInField, WrongLength

BITS = 61
P = (1 << BITS) - 1
HALF = P // 2
"""Signed integers up to this magnitude have distinct field elements."""
BYTES = 8
"""An element on the wire: fixed width, little-endian."""

FieldArray = NDArray[np.int64]
Words = NDArray[np.uint64]

_P = np.uint64(P)
_BITS = np.uint64(BITS)
_LOW_BITS = np.uint64(31)
_LOW = np.uint64((1 << 31) - 1)
_HALF_WORD = np.uint64(32)
_MOVED_BITS = np.uint64(BITS - 32)
_MIDDLE_BITS = np.uint64(30)
_MIDDLE = np.uint64((1 << 30) - 1)

_CACHED = 1 << 15  # Long vectors are summed in blocks of this length, which stay in a core's cache.


def _words(a: FieldArray) -> Words:
    assert a.dtype == np.int64, "another type would be read as bytes of something else"
    return a.view(np.uint64)


def _below_p(x: Words) -> FieldArray:
    """Canonical form of numbers below 2p. A difference that wraps is huge, so the minimum picks right."""
    canonical: Words = np.minimum(x, x - _P)
    return canonical.view(np.int64)


def _fold(x: Words) -> FieldArray:
    """Canonical form of any 64-bit numbers: the upper three bits count for 2^61 = 1."""
    return _below_p((x & _P) + (x >> _BITS))


def add(a: FieldArray, b: FieldArray) -> FieldArray:
    """a + b."""
    return _below_p(_words(a) + _words(b))


def subtract(a: FieldArray, b: FieldArray) -> FieldArray:
    """a - b. A difference below zero wraps, and adding p wraps it back to where it belongs."""
    difference: Words = _words(a) - _words(b)
    canonical: Words = np.minimum(difference, difference + _P)
    return canonical.view(np.int64)


def multiply(a: FieldArray, b: FieldArray) -> FieldArray:
    """a * b, elementwise, from limbs of 30 and 31 bits whose products fit in 62 bits."""
    x, y = _words(a), _words(b)
    x1, x0 = x >> _LOW_BITS, x & _LOW
    y1, y0 = y >> _LOW_BITS, y & _LOW
    cross = x1 * y0 + x0 * y1  # below 2^62
    low = x0 * y0  # below 2^62
    # x y = x1 y1 2^62 + cross 2^31 + low, with 2^62 = 2 and (cross >> 30) 2^61 = cross >> 30.
    total = (x1 * y1) << np.uint64(1)
    total += cross >> _MIDDLE_BITS
    total += (cross & _MIDDLE) << _LOW_BITS
    total += (low & _P) + (low >> _BITS)
    return _fold(total)


def shift(a: FieldArray, bits: int) -> FieldArray:
    """a * 2^bits: modulo 2^61 - 1 a power of two rotates the 61 bits."""
    turn = np.uint64(bits % BITS)
    x = _words(a)
    return _below_p(((x << turn) & _P) | (x >> (_BITS - turn)))


def total(a: FieldArray, axis: int = 0) -> FieldArray:
    """The sum over one axis, without overflow at any length below 2^32.

    Sums all bits modulo 2^64 and the upper ones exactly; the difference is the sum of the lower 32, which
    itself is below 2^64.
    """
    rows = np.moveaxis(_words(a), axis, 0)
    columns = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    everything, upper = np.zeros((2, columns.shape[1]), np.uint64)
    block = max(1, _CACHED // max(1, columns.shape[1]))
    for start in range(0, len(columns), block):
        part = columns[start : start + block]
        everything += part.sum(axis=0, dtype=np.uint64)
        upper += (part >> _HALF_WORD).sum(axis=0, dtype=np.uint64)
    return _joined(everything, upper).reshape(rows.shape[1:])


class Totals:
    """The sums of groups whose elements come in pieces, computed as in `total`. Fewer than 2^32 elements."""

    def __init__(self, groups: int) -> None:
        self._everything, self._upper = np.zeros((2, groups), np.uint64)

    def add(self, a: FieldArray, group: NDArray[np.intp]) -> None:
        """Element i belongs to group[i], of 0 … groups - 1."""
        assert len(group) == len(a) < 1 << 32
        assert len(a) == 0 or 0 <= group.min() <= group.max() < len(self._upper)
        # Two arrays that together outgrow the cache take long turns: alternating takes twice the time.
        turn = _CACHED if len(self._upper) <= _CACHED else max(1, len(a))
        for start in range(0, len(a), turn):
            words, index = _words(a[start : start + turn]), group[start : start + turn]
            np.add.at(self._everything, index, words)
            for block in _blocks(len(index)):
                np.add.at(self._upper, index[block], words[block] >> _HALF_WORD)

    def sums(self) -> FieldArray:
        """One element per group."""
        return _joined(self._everything, self._upper)


def total_by(a: FieldArray, group: NDArray[np.intp], groups: int) -> FieldArray:
    """The sum of every group: element i belongs to group[i], of 0 … groups - 1."""
    totals = Totals(groups)
    totals.add(a, group)
    return totals.sums()


def accumulate(total: FieldArray, a: FieldArray) -> None:
    """total = total + a, in place, in blocks that stay in cache. `total` is contiguous."""
    assert total.shape == a.shape
    whole, more = _words(total).reshape(-1), _words(a).reshape(-1)
    for block in _blocks(len(whole)):
        part = whole[block]
        part += more[block]
        np.minimum(part, part - _P, out=part)


def _joined(everything: Words, upper: Words) -> FieldArray:
    """lower + upper 2^32, where everything = lower + upper 2^32 modulo 2^64, and upper is below 2^61."""
    joined = np.empty(len(upper), np.int64)
    for block in _blocks(len(upper)):
        moved = upper[block] << _HALF_WORD
        lower = everything[block] - moved
        # upper 2^32 = (upper >> 29) 2^61 + the lower 29 bits of upper, moved. All in all below 2^63.
        lower = (lower & _P) + (lower >> _BITS)
        joined[block] = _fold(lower + (moved & _P) + (upper[block] >> _MOVED_BITS))
    return joined


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, start + _CACHED) for start in range(0, length, _CACHED))


def from_signed(x: NDArray[np.int64]) -> FieldArray:
    """Signed integers as field elements."""
    assert x.dtype == np.int64
    if x.size and (int(x.max()) > HALF or int(x.min()) < -HALF):
        raise FieldOverflow(f"only integers of magnitude up to {HALF} have a place in the field")
    return x + (x < 0) * np.int64(P)


def to_signed(a: FieldArray) -> NDArray[np.int64]:
    """The representative nearest to 0: the inverse of `from_signed`."""
    return a - (a > HALF) * np.int64(P)


def to_bytes(a: FieldArray) -> bytes:
    """Elements as they cross the wire: eight bytes each, little-endian."""
    return a.astype("<i8", copy=False).tobytes()


def from_bytes(data: bytes) -> FieldArray:
    """Elements off the wire. Refuses a wrong length and values of p or more."""
    if len(data) % BYTES:
        raise WrongLength(f"field elements take {BYTES} bytes each; {len(data)} bytes are no whole number")
    words = np.frombuffer(data, dtype="<u8").astype(np.uint64)
    if (words >= _P).any():
        raise NotInField("a field element is p or more")
    return words.view(np.int64)
