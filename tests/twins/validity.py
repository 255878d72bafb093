"""Proofs and checks of one record, in plain integers, by interpolation as it is in textbooks."""

import hashlib
from collections.abc import Sequence

P = 2**61 - 1


def at(points: Sequence[int], values: Sequence[int], x: int) -> int:
    """The polynomial through these points, at x."""
    total = 0
    for i, value in zip(points, values, strict=True):
        term = value
        for k in points:
            if k != i:
                term = term * (x - k) * pow(i - k, -1, P) % P
        total += term
    return total % P


def weights(low: int, high: int) -> list[int]:
    """Of a value's bits: powers of two, and what is left of the range."""
    left, made = max(high, 0) - min(low, 0), list[int]()
    while left:
        made.append(min(1 << len(made), left))
        left -= made[-1]
    return made


def one_hot(masks: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Every label's masks, and their sum."""
    bits, left = [], list(masks)
    for count in counts:
        own, left = left[:count], left[count:]
        bits += [*own, sum(own) % P]
    return bits


def prove(bits: Sequence[int], u: int) -> list[int]:
    m = len(bits)
    f = [at(range(m + 1), [u, *bits], x) for x in (0, *range(m + 1, 2 * m + 1))]
    return [u, *(y * (y - 1) % P for y in f)]


def challenge(key: bytes, report_id: bytes, m: int) -> int:
    size = 0
    while True:
        size += 8
        stream = hashlib.shake_128(b"maskedlark v2 check" + key + report_id).digest(size)
        t = int.from_bytes(stream[-8:], "little") % 2**61
        if 2 * m < t < P:
            return t


def evaluate(bits: Sequence[int], proof: Sequence[int], t: int) -> tuple[int, int]:
    """A helper's two numbers, from its shares of the bits and of the proof."""
    m = len(bits)
    f = at(range(m + 1), [proof[0], *bits], t)
    return f, at(range(2 * m + 1), [proof[1], *[0] * m, *proof[2:]], t)


def valid(numbers: Sequence[tuple[int, int]]) -> bool:
    f, g = sum(f for f, _ in numbers), sum(g for _, g in numbers)
    return (f * (f - 1) - g) % P == 0
