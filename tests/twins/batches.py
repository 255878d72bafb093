"""Batches, one record at a time: ChaCha20 by its definition (nonce and counter 0), in plain Python."""

import hashlib
from fractions import Fraction
from math import comb

MASK = 0xFFFFFFFF


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & MASK


def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for left, right, mixed, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[left] = (s[left] + s[right]) & MASK
        s[mixed] = rotate(s[mixed] ^ s[left], bits)


def block(key: bytes, number: int) -> bytes:
    words = [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *words, number & MASK, number >> 32, 0, 0]
    state = list(start)
    for _ in range(10):
        for column in range(4):
            quarter(state, column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(state, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return b"".join(((x + y) & MASK).to_bytes(4, "little") for x, y in zip(state, start, strict=True))


def word(seed: bytes, kind: str, tag: str, slot: int, records: int, number: int) -> int:
    """One word of a draw's stream."""
    named = b"".join(len(each.encode()).to_bytes(4, "big") + each.encode() for each in (kind, tag))
    key = hashlib.sha256(
        b"maskedlark v2 batch" + seed + named + slot.to_bytes(8, "big") + records.to_bytes(8, "big")
    ).digest()
    at = 8 * (number % 8)
    return int.from_bytes(block(key, number // 8)[at : at + 8], "little")


def is_below(number: int, probability: float) -> bool:
    """Whether a word is below that part of all words: never likelier than the probability."""
    return number < Fraction(probability) * 2**64 // 1


def sizes(rate: float, records: int) -> list[int]:
    """The chance of so many or fewer, from 0 on, in 2^-128: exact fractions, rounded down once."""
    q, total, ends = Fraction(rate), Fraction(0), []
    for size in range(records + 1):
        total += comb(records, size) * q**size * (1 - q) ** (records - size)
        ends.append(int(total * 2**128))
    return ends


def room(rate: float, records: int) -> int:
    """The least size that is exceeded with a probability of 2^-64 at most."""
    if rate == 1 or records == 0:
        return records
    return next(size for size, end in enumerate(sizes(rate, records)) if 2**128 - end <= 2**64)


def poisson(seed: bytes, tag: str, slot: int, rate: float, records: int) -> tuple[list[int], list[int]]:
    """Who is in a batch, and the rows that its work is over, whoever counts."""
    if rate == 1 or records == 0:
        return list(range(records)), list(range(records))

    def at(number: int) -> int:
        return word(seed, "poisson", tag, slot, records, number)

    uniform = at(0) + (at(1) << 64)
    size = sum(end <= uniform for end in sizes(rate, records))
    most, named, number = room(rate, records), list[int](), 2
    few = 2 * most <= records
    while len(named) < (most if few else (records + 1) // 2):
        # A word that is too large would make some rows likelier than others; a row counts once.
        if at(number) < 2**64 // records * records and at(number) % records not in named:
            named.append(at(number) % records)
        number += 1
    if few:
        return sorted(named[:size]), named
    if 2 * size <= records:
        return sorted(named[:size]), list(range(records))
    return sorted(set(range(records)) - set(named[: records - size])), list(range(records))


def is_held_out(seed: bytes, tag: str, share: float, records: int, record: int) -> bool:
    return is_below(word(seed, "held out", tag, 0, records, record), share)


def place(seed: bytes, tag: str, slot: int, batches: int, records: int, record: int) -> int:
    """The batch of an epoch that a record is in: by its rank among all words. The first batches take more."""
    words = [(word(seed, "partition", tag, slot, records, each), each) for each in range(records)]
    rank = sorted(words).index((words[record][0], record))
    size, more = divmod(records, batches)
    if rank < more * (size + 1):
        return rank // (size + 1)
    return more + (rank - more * (size + 1)) // size
