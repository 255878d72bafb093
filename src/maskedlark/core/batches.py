"""Who is in a step's batch: drawn by helpers from a seed that they share, so that no ad server chooses it.

A batch is a pseudo-random function of seed, model, slot and record. Records count in their dataset's order,
which is the same at every helper; a *slot* is the number of a step in a dataset, and is used once, ever.
Every draw is a stream of ChaCha20 under a key of its own, one word of 64 bits a record: all helpers draw the
same, and who has no seed cannot tell a draw from chance. Run by helpers.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from maskedlark.errors import NotDeclared

SEED_BYTES = 32
Rows = NDArray[np.intp]
"""Places of records, in order."""
_LABEL = b"maskedlark v1 batch"
_ROUNDS = 20
_WHOLE = 1 << 64


def held_out(seed: bytes, tag: str, share: float, records: int) -> NDArray[np.bool_]:
    """Which records are kept out of every batch, to evaluate with: each by itself, with this probability."""
    return _words(seed, "held out", tag, 0, records) < _threshold(share)


def poisson(seed: bytes, tag: str, slot: int, rate: float, records: int) -> Rows:
    """A batch in which every record is by itself, with this probability."""
    if rate == 1:  # The threshold would be one more than the largest word, and no word can hold it.
        return np.arange(records)
    return np.flatnonzero(_words(seed, "poisson", tag, slot, records) < _threshold(rate))


def partition(seed: bytes, tag: str, slot: int, batches: int, records: int) -> list[Rows]:
    """All batches of an epoch whose first step has this slot: every record is in exactly one of them."""
    if batches < 1:
        raise NotDeclared(f"an epoch has 1 batch or more, not {batches}")
    # Stable: of two equal words, which hardly ever come, all helpers put the same record first.
    order = np.argsort(_words(seed, "partition", tag, slot, records), kind="stable")
    return [np.sort(part) for part in np.array_split(order, batches)]


def most_batches(seed: bytes, tag: str, slots: Iterable[int], rate: float, records: int) -> int:
    """The most Poisson batches that one record is in: what a coalition knows, and the budget counts."""
    counts = np.zeros(records, np.int32)
    for slot in slots:
        counts[poisson(seed, tag, slot, rate, records)] += 1
    return int(counts.max(initial=0))


def _threshold(probability: float) -> np.uint64:
    if not 0 <= probability < 1:
        raise NotDeclared(f"a share is at least 0 and less than 1, not {probability}")
    # Exact: a float has 53 bits. So what is drawn is never more likely than what is accounted.
    return np.uint64(int(probability * _WHOLE))


def _words(seed: bytes, kind: str, tag: str, slot: int, records: int) -> NDArray[np.uint64]:
    """One word a record, under a key that binds every argument."""
    if len(seed) != SEED_BYTES:
        raise NotDeclared(f"a batch seed has {SEED_BYTES} bytes")
    named = tag.encode()
    bound = b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), named))
    key = hashlib.sha256(
        _LABEL + seed + bound + slot.to_bytes(8, "big") + records.to_bytes(8, "big")
    ).digest()
    # The keystream of ChaCha20 under this key, block counter and nonce 0: eight bytes a word, low byte first.
    words: NDArray[np.uint64] = ChaCha(key=int.from_bytes(key, "little"), rounds=_ROUNDS).random_raw(records)
    return words
