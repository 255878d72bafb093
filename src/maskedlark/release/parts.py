"""Some of a model's records: a batch, or what is held out of all batches. Run by a helper.

The amount of work must not reveal what the ad server does not know. So the number of records computed over is
public, in every shard; those that do not count have shares of 0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import batches
from maskedlark.core.batches import Draw, Rows
from maskedlark.dp.sampling import Sampling
from maskedlark.functions.function import Part
from maskedlark.randomness import Randomness
from maskedlark.release.shards import Shard, ShardRows
from maskedlark.wire.steps import Ranges

T = TypeVar("T", bound=np.generic)
_BLOCK = 1 << 18
# All steps of an epoch share its parts; all steps of a session share the held-out records.
_partition = lru_cache(maxsize=4)(batches.partition)
_held_out = lru_cache(maxsize=16)(batches.held_out)


@dataclass(frozen=True, repr=False)
class Work:
    """The rows of every dataset to compute over, and which of them count."""

    rows: tuple[Rows, ...]
    """By dataset."""
    counted: NDArray[np.bool_]
    """For all rows, in the order of the datasets."""
    rate: float | None = None
    """The probability with which a record is among them. None: the ad server knows the rows."""

    def at_least(self, k: int) -> "Work":
        """The same work, in which no row counts if fewer than k do."""
        return Work(self.rows, self.counted & (np.count_nonzero(self.counted) >= k), self.rate)

    def cut(self, datasets: Sequence[Sequence[Shard]], rng: Randomness) -> list[ShardRows]:
        """The rows of every shard, of a public number each."""
        pieces: list[ShardRows] = []
        ends = np.cumsum([0, *map(len, self.rows)])
        for place, (rows, shards) in enumerate(zip(self.rows, datasets, strict=True)):
            counted = self.counted[ends[place] : ends[place + 1]]
            # Whether they are in order follows from the kind of sampling.
            if (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows, kind="stable")
                pieces += self._of_dataset(rows[order], counted[order], shards, rng)
            else:
                pieces += self._of_dataset(rows, counted, shards, rng)
        return pieces

    def _of_dataset(
        self, rows: Rows, counted: NDArray[np.bool_], shards: Sequence[Shard], rng: Randomness
    ) -> Iterator[ShardRows]:
        # Of the rows' own type: else all rows would be converted.
        starts = np.cumsum([0, *map(len, shards)]).astype(rows.dtype)
        cuts = np.searchsorted(rows, starts)
        for shard, start, low, high in zip(shards, starts, cuts, cuts[1:], strict=False):
            own, counts, size = rows[low:high] - start, counted[low:high], len(shard)
            if self.rate is not None:
                own = own[counts]
                # All rows together are of a public number too.
                room = min(batches.room(self.rate, size), len(self.counted))
                own, counts = _padded(own, size, room, rng)
            yield ShardRows(shard, None if len(own) == size else own, counts)


def of_part(part: Part, seeds: Sequence[bytes], tag: str, sizes: Sequence[int]) -> Work:
    """The records of a part."""
    draws = []
    for seed, size in zip(seeds, sizes, strict=True):
        out = _held_out(seed, tag, part.held_out, size)
        draws.append(Draw(batches.places(size), out if part.which == "held_out" else ~out))
    return _filled(draws, batches.room(part.share, sum(sizes)), part.share)


class Batches:
    """The batches of one session's steps. One thread at a time uses it.

    A record is left out of all batches beyond those that its session's charge states. That depends on the
    seed alone, and hardly ever happens (`session_charge.batch_bound`).
    """

    def __init__(
        self,
        sampling: Sampling,
        tag: str,
        seeds: Sequence[bytes],
        firsts: Sequence[int],
        sizes: Sequence[int],
        most: Callable[[int], int] | None = None,
    ) -> None:
        """`firsts`: the slot of the first step in every dataset. `most`: a record's batches, by step."""
        self._sampling, self._tag = sampling, tag
        self._most = None if sampling.rate in (None, 1.0) else most
        self._seeds, self._firsts, self._sizes = seeds, firsts, sizes
        self._seen: list[NDArray[np.int32]] = []
        self._next = 0

    def work(self, step: int, chosen: Ranges = ()) -> Work:
        """The rows of a step's batch and those that pad it. Draws earlier steps if necessary."""
        drawn = self._allowed(step)
        out = self._sampling.held_out
        if out:
            drawn = [
                Draw(each.rows, each.taken & ~_at(_held_out(seed, self._tag, out, size), each.rows))
                for each, seed, size in zip(drawn, self._seeds, self._sizes, strict=True)
            ]
        if self._sampling.kind == "chosen":
            drawn = self._chosen(drawn, chosen)
        return _filled(drawn, *self._room(drawn))

    def most(self, step: int) -> int:
        """The most batches that a record may have been in, including this one; 0 if unlimited."""
        return 0 if self._most is None else self._most(step)

    def _allowed(self, step: int) -> list[Draw]:
        """A step's batch without records that were in too many before."""
        if self._most is None:
            return self._drawn(step)
        if step < self._next or not self._seen:
            self._seen, self._next = [np.zeros(size, np.int32) for size in self._sizes], 0
        while self._next <= step:
            drawn, most = self._drawn(self._next), self._most(self._next)
            for seen, each in zip(self._seen, drawn, strict=True):
                # All of them: time must not reveal how many are in the batch.
                seen[... if len(each.rows) == len(seen) else each.rows] += each.taken
            self._next += 1
        return [
            Draw(each.rows, each.taken & (_at(seen, each.rows) <= most))
            for seen, each in zip(self._seen, drawn, strict=True)
        ]

    def _drawn(self, step: int) -> list[Draw]:
        return [self._draw(*each, step) for each in zip(self._seeds, self._firsts, self._sizes, strict=True)]

    def _draw(self, seed: bytes, first: int, size: int, step: int) -> Draw:
        sampling = self._sampling
        if sampling.rate is not None:
            return batches.poisson(seed, self._tag, first + step, sampling.rate, size)
        if sampling.batches is not None:
            place = step % sampling.batches
            own = _partition(seed, self._tag, first + step - place, sampling.batches, size) == place
            rows = np.flatnonzero(own).astype(np.int32)
            return Draw(rows, np.ones(len(rows), np.bool_))
        return batches.everybody(size)

    def _chosen(self, drawn: Sequence[Draw], chosen: Ranges) -> list[Draw]:
        """The records that a step names, numbered across all datasets."""
        named = np.zeros(sum(self._sizes), np.bool_)
        for start, stop in chosen:
            named[start:stop] = True
        ends = np.cumsum([0, *self._sizes])
        wanted = [named[slice(*ends[place : place + 2])][each.rows] for place, each in enumerate(drawn)]
        return [Draw(each.rows[own], each.taken[own]) for each, own in zip(drawn, wanted, strict=True)]

    def _room(self, drawn: Sequence[Draw]) -> tuple[int, float | None]:
        """How many rows there may be, and how likely each record is among them, if that is hidden."""
        rate, rows = self._sampling.rate, sum(len(each.rows) for each in drawn)
        if rate is not None:
            return self._sampling.most(self._sizes), rate * (1 - self._sampling.held_out)
        return rows, None if self._sampling.batches is None else 1 / self._sampling.batches


def forget() -> None:
    """Drop what was drawn, which hold seeds. Run by a helper, every hour."""
    _partition.cache_clear()
    _held_out.cache_clear()


def _filled(drawn: Sequence[Draw], most: int, rate: float | None) -> Work:
    """`most` rows in all, taken ones first: a surplus is rare, and every helper leaves it out alike."""
    left = min(most, sum(np.count_nonzero(each.taken) for each in drawn))
    others, every = most - left, sum(len(each.rows) for each in drawn)
    rows, counted = [], []
    for each in drawn:
        kept = np.empty(len(each.rows), np.bool_)
        for start in range(0, len(kept), _BLOCK):
            taken = each.taken[start : start + _BLOCK]
            # The same work for every block, whoever is in it.
            first = np.cumsum(taken, dtype=np.int32)
            rest = np.arange(1, len(taken) + 1) - first
            kept[start : start + _BLOCK] = np.where(taken, first <= left, rest <= others)
            left, others = left - int(first[-1]), others - int(rest[-1])
        rows.append(each.rows if most >= every else each.rows[kept])
        counted.append(each.taken[kept])
    return Work(tuple(rows), np.concatenate(counted), rate)


def _at(values: NDArray[T], rows: Rows) -> NDArray[T]:
    """Values of some rows; if these are all, they are in order, and nothing is copied."""
    return values if len(rows) == len(values) else values[rows]


def _padded(rows: Rows, size: int, room: int, rng: Randomness) -> tuple[Rows, NDArray[np.bool_]]:
    """`room` rows of a shard of this size, in order, and that these alone count. More if there are more."""
    if room >= size:
        counted = np.zeros(size, np.bool_)
        counted[rows] = True
        return batches.places(size), counted
    # Random ones: reading the same row again and again would take less time than reading the batch.
    padding = rng.below(size, max(0, room - len(rows))).astype(np.int32)
    every, counted = np.concatenate([rows, padding]), np.arange(max(room, len(rows))) < len(rows)
    order = np.argsort(every, kind="stable")
    return every[order], counted[order]
