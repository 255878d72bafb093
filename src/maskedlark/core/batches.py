"""Which records are in a step's batch: helpers draw it from a shared seed, so no ad server chooses it.

A batch is a pseudo-random function of seed, model, slot and the record's place in its dataset, where every
helper sorts records by id. A *slot* is the number of a step in a dataset, and is used only once. Every draw
is a ChaCha20 stream under its own key: all helpers draw the same; without the seed it looks random.

Poisson batches take time proportional to the batch. First the size is drawn from Binomial(n, q), then that
many distinct records uniformly. A set of size m is thus drawn with probability
C(n, m) q^m (1-q)^(n-m) / C(n, m) = q^m (1-q)^(n-m): that of n independent coins. The size is found by
comparing a word of 128 bits with the binomial distribution function, computed to 60 decimal digits by integer
arithmetic, the same on every machine; so a batch is within 2^-100 of its law in total variation.

Other rows pad a batch to a public size (`room`), so that the work does not reveal its size. A batch exceeds
that with a probability below 2^-64; the excess is dropped.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from maskedlark.errors import NotDeclared

VERSION = 1
"""Incremented with every change of which records are drawn, held out or left out, here or in `release.parts`:
answers of two versions must not be added up, or taken for the same."""
SEED_BYTES = 32
EXCEEDS_BITS = 64
"""A batch exceeds its room with a probability below 2 to minus this."""
Rows = NDArray[np.integer[Any]]
"""Places of records. Of 32 bits where there may be many: no release has as many as 2^31 records."""
BLOCK = 1 << 18
"""Words that are drawn at once, where many are needed."""
_LABEL = b"maskedlark v2 batch"
_ROUNDS = 20
_WHOLE = 1 << 64
_SIZE_BITS = 128
_PRECISE = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_SPARSE = 64
"""If fewer than one record in this many is drawn, sorting is faster than an array of all records."""
_NOTHING = Decimal(10) ** -50
"""Sizes this much rarer than the likeliest are never drawn: together they have probability 2^-149."""


@dataclass(frozen=True, repr=False)
class Draw:
    """Rows of a dataset, and which of them are in the batch. The total row count is public."""

    rows: Rows
    taken: NDArray[np.bool_]

    @property
    def batch(self) -> Rows:
        """The batch alone, in order."""
        return np.sort(self.rows[self.taken])


def everybody(records: int) -> Draw:
    """All records."""
    return Draw(places(records), np.ones(records, np.bool_))


def places(records: int) -> Rows:
    """All places, in order."""
    return np.arange(records, dtype=np.int32)


def held_out(seed: bytes, tag: str, share: float, records: int) -> NDArray[np.bool_]:
    """Which records are held out for evaluation: each independently, with this probability."""
    stream, out = _stream(seed, "held out", tag, 0, records), np.empty(records, np.bool_)
    for block, words in _drawn(stream, records):
        np.less(words, _threshold(share), out=out[block])
    return out


def poisson(seed: bytes, tag: str, slot: int, rate: float, records: int) -> Draw:
    """A batch with each record independently, with probability `rate`, and rows that pad it."""
    if rate == 1 or records == 0:
        return everybody(records)
    stream = _stream(seed, "poisson", tag, slot, records)
    low, high = stream.random_raw(2).tolist()
    size = min(records, _sizes(rate, records).size(low + (high << 64)))
    most = room(rate, records)
    if 2 * most <= records:
        rows = _different(stream, most, records)
        return Draw(rows, np.arange(most) < size)
    # A large batch is drawn by its complement; the number of draws does not depend on the size.
    named = _different(stream, -(-records // 2), records)
    taken, few = np.zeros(records, np.bool_), 2 * size <= records
    taken[named[: size if few else records - size]] = True
    return Draw(places(records), taken if few else ~taken)


def partition(seed: bytes, tag: str, slot: int, batches: int, records: int) -> Rows:
    """The batch of every record in the epoch whose first step has this slot: each is in exactly one.

    Records are put in the order of their words (for equal words, which are very rare, in their own), and that
    is cut into parts, the first of which have one record more. Nothing is sorted but what has the same
    leading bits as some part's end: of up to 2^15 parts, one record in 32.
    """
    if batches < 1:
        raise NotDeclared(f"an epoch has 1 batch or more, not {batches}")
    shift = np.uint64(64 - max(8, min(20, (32 * batches).bit_length())))

    def leading() -> Iterator[tuple[slice, NDArray[np.uint64], NDArray[np.intp]]]:
        for block, words in _drawn(_stream(seed, "partition", tag, slot, records), records):
            yield block, words, (words >> shift).astype(np.intp)

    counts = np.zeros(1 << (64 - int(shift)), np.int64)
    for _, _, first in leading():
        counts += np.bincount(first, minlength=len(counts))
    least, extra = divmod(records, batches)
    ends = np.cumsum(least + (np.arange(batches) < extra))
    before = np.cumsum(counts) - counts
    # The part of the first and the last record with these bits; if they differ, of each one by its word.
    low, high = (np.searchsorted(ends, rank, "right") for rank in (before, before + counts - 1))
    is_cut, part = low < high, low.astype(np.min_scalar_type(batches))
    batch_of = np.empty(records, part.dtype)
    open_words, open_places = [np.empty(0, np.uint64)], [np.empty(0, np.intp)]
    for block, words, first in leading():
        batch_of[block] = part[first]
        still = np.flatnonzero(is_cut[first])
        open_words.append(words[still])
        open_places.append(still + block.start)
    words, still = np.concatenate(open_words), np.concatenate(open_places)
    order = np.argsort(words, kind="stable")
    first = (words[order] >> shift).astype(np.intp)
    rank = before[first] + np.arange(len(first)) - np.searchsorted(first, first)
    batch_of[still[order]] = np.searchsorted(ends, rank, "right")
    return batch_of


@lru_cache(maxsize=1 << 16)  # Every step asks for that of every shard.
def room(rate: float, records: int) -> int:
    """The public size that a Poisson batch exceeds with a probability below 2^-64."""
    return records if rate == 1 or records == 0 else min(records, _distribution(rate, records).most)


class _Sizes(NamedTuple):
    """The distribution function of a batch's size, in units of 2^-128, from the least size on."""

    least: int
    ends: tuple[int, ...]

    def size(self, word: int) -> int:
        """The size for a uniform number of 128 bits."""
        return self.least + bisect_right(self.ends, word)

    @property
    def most(self) -> int:
        """The least size exceeded with a probability below 2^-64."""
        return self.least + bisect_left(self.ends, (1 << _SIZE_BITS) - (1 << (_SIZE_BITS - EXCEEDS_BITS)))


def _distribution(rate: float, records: int) -> _Sizes:
    """Binomial(records, rate): each size's weight from its neighbour's, from the likeliest on."""
    if not 0 < rate < 1:
        raise NotDeclared(f"a rate is over 0, and 1 at most, not {rate}")
    with localcontext(_PRECISE):
        q = Decimal(rate)  # Exactly: a float is a fraction of a power of 2.
        odds, likeliest = q / (1 - q), int((records + 1) * q)
        above = list(_weights(likeliest, 1, lambda m: odds * (records - m) / (m + 1), records))
        below = list(_weights(likeliest, -1, lambda m: m / odds / (records - m + 1), records))
        weights = [*below[:0:-1], *above]
        whole = sum(weights)
        ends = tuple(int(total / whole * (1 << _SIZE_BITS)) for total in accumulate(weights))
    return _Sizes(likeliest - len(below) + 1, ends)


_sizes = lru_cache(maxsize=512)(_distribution)
"""Of whole datasets, which batches are drawn from: some hundred kilobytes each."""


def _weights(likeliest: int, by: int, ratio: Callable[[int], Decimal], records: int) -> Iterator[Decimal]:
    """The weights of sizes on one side of the likeliest, which has 1, until they are negligible."""
    size, weight = likeliest, Decimal(1)
    while 0 <= size <= records and weight > _NOTHING:
        yield weight
        weight *= ratio(size)
        size += by


def _different(stream: ChaCha, count: int, records: int) -> Rows:
    """`count` distinct records, in the order in which a stream of words names them."""
    # Words beyond this would make the first records likelier than the last.
    last = _WHOLE // records * records - 1
    rows: Rows = np.empty(0, np.int32)
    while (missing := count - len(rows)) > 0:
        named = [rows]
        for _, words in _drawn(stream, missing + missing * count // records + 8):
            named.append((words[words <= np.uint64(last)] % np.uint64(records)).astype(np.int32))
        rows = _once(np.concatenate(named), records)
    return rows[:count]


def _once(rows: Rows, records: int) -> Rows:
    """Every row at its first occurrence."""
    if records > _SPARSE * len(rows):
        return rows[np.sort(np.unique(rows, return_index=True)[1])]
    order = places(len(rows))
    first = np.full(records, len(rows), np.int32)
    np.minimum.at(first, rows, order)
    once: Rows = rows[first[rows] == order]
    return once


def _drawn(stream: ChaCha, count: int) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """So many words, in blocks: all at once they would take eight bytes each."""
    for start in range(0, count, BLOCK):
        block = slice(start, min(start + BLOCK, count))
        yield block, stream.random_raw(block.stop - start)


def _threshold(probability: float) -> np.uint64:
    if not 0 <= probability < 1:
        raise NotDeclared(f"a share is at least 0 and less than 1, not {probability}")
    # Exact, since a float has 53 bits: a draw is never more likely than accounted for.
    return np.uint64(int(probability * _WHOLE))


def _stream(seed: bytes, kind: str, tag: str, slot: int, records: int) -> ChaCha:
    """Words under a key that binds every argument."""
    if len(seed) != SEED_BYTES:
        raise NotDeclared(f"a batch seed has {SEED_BYTES} bytes")
    bound = b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), tag.encode()))
    key = hashlib.sha256(
        _LABEL + seed + bound + slot.to_bytes(8, "big") + records.to_bytes(8, "big")
    ).digest()
    # ChaCha20's keystream under this key, block counter and nonce 0, as little-endian 64-bit words.
    return ChaCha(key=int.from_bytes(key, "little"), rounds=_ROUNDS)
