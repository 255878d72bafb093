"""Some of a model's records: a batch, or what is held out of all batches. Run by a helper.

The amount of work must not reveal what the ad server does not know. So the number of records computed over is
public, in every shard; those that do not count have shares of 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
_ORDER_BITS = 32
"""Of a drawn number: they put rows in a random order."""


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
        shards, (rows, counted) = [each for own in datasets for each in own], self._in_order(datasets)
        # Of the rows' own type: else all rows would be converted.
        starts = np.cumsum([0, *map(len, shards)]).astype(rows.dtype)
        if self.rate in (None, 1.0):
            cuts = np.searchsorted(rows, starts)
            pieces = [
                (rows[low:high] - start, counted[low:high])
                for start, low, high in zip(starts, cuts, cuts[1:], strict=False)
            ]
        else:
            # All rows together are of a public number too.
            rooms = [min(batches.room(self.rate, len(shard)), len(rows)) for shard in shards]
            batch = _batch_first(rows, counted, max(rooms, default=0))
            cuts = np.searchsorted(batch, starts)
            pieces = [
                _padded(batch[low : low + max(room, high - low)] - start, len(shard), rng)
                for shard, room, start, low, high in zip(shards, rooms, starts, cuts, cuts[1:], strict=False)
            ]
        return [
            ShardRows(shard, None if len(own) == len(shard) else own, counts)
            for shard, (own, counts) in zip(shards, pieces, strict=True)
        ]

    def _in_order(self, datasets: Sequence[Sequence[Shard]]) -> tuple[Rows, NDArray[np.bool_]]:
        """All rows, numbered across datasets, and which of them count."""
        rows = self.rows[0]
        if len(datasets) > 1:
            starts = np.cumsum([0, *(sum(map(len, own)) for own in datasets)])
            # One dataset's numbers fit into 32 bits, those of thousands may not.
            kind = rows.dtype if starts[-1] < np.iinfo(rows.dtype).max else starts.dtype
            numbered = zip(self.rows, starts.astype(kind), strict=False)
            rows = np.concatenate([own.astype(kind) + start for own, start in numbered])
        # Whether they are in order follows from the kind of sampling.
        if not (rows[1:] < rows[:-1]).any():
            return rows, self.counted
        keys = np.sort(rows.astype(np.int64) << 1 | self.counted)
        return (keys >> 1).astype(rows.dtype), (keys & 1).astype(np.bool_)


def of_part(part: Part, seeds: Sequence[bytes], tag: str, sizes: Sequence[int]) -> Work:
    """The records of a part."""
    draws = []
    for seed, size in zip(seeds, sizes, strict=True):
        out = batches.held_out(seed, tag, part.held_out, size)
        draws.append(Draw(batches.places(size), out if part.which == "held_out" else ~out))
    return _filled(draws, batches.room(part.share, sum(sizes)), part.share)


@dataclass(repr=False)
class _Drawn:
    """What a session's next step needs of what was drawn before, by dataset."""

    seen: list[NDArray[np.int32]] = field(default_factory=list)
    """In how many batches every record was, up to the next step."""
    next: int = 0
    held_out: list[NDArray[np.bool_]] = field(default_factory=list)
    parts: list[Rows] = field(default_factory=list)
    """Of the epoch that begins with this step."""
    epoch: int = -1


class Batches:
    """The batches of one session's steps. One thread at a time uses it; any may have it forget.

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
        self._kept = _Drawn()

    @property
    def kept_bytes(self) -> int:
        """What is kept from one step to the next."""
        count, out = self._sampling.batches, bool(self._sampling.held_out)
        each = 0 if count is None else np.min_scalar_type(count).itemsize
        return sum(self._sizes) * (each + out + (4 if self._most else 0))

    def forget(self) -> None:
        """Keep nothing: the next step draws all of it again."""
        self._kept = _Drawn()

    def work(self, step: int, chosen: Ranges = ()) -> Work:
        """The rows of a step's batch and those that pad it. Draws earlier steps if necessary."""
        kept, self._kept = self._kept, _Drawn()  # If it fails half-way, nothing is counted twice.
        drawn = self._allowed(step, kept)
        if out := self._sampling.held_out:
            if not kept.held_out:
                each_size = zip(self._seeds, self._sizes, strict=True)
                kept.held_out = [batches.held_out(seed, self._tag, out, size) for seed, size in each_size]
            drawn = [
                Draw(each.rows, each.taken & ~_at(own, each.rows))
                for each, own in zip(drawn, kept.held_out, strict=True)
            ]
        if self._sampling.kind == "chosen":
            drawn = self._chosen(drawn, chosen)
        self._kept = kept
        return _filled(drawn, *self._room(drawn))

    def most(self, step: int) -> int:
        """The most batches that a record may have been in, including this one; 0 if unlimited."""
        return 0 if self._most is None else self._most(step)

    def _allowed(self, step: int, kept: _Drawn) -> list[Draw]:
        """A step's batch without records that were in too many before."""
        if self._most is None:
            return self._drawn(step, kept)
        if step < kept.next or not kept.seen:
            kept.seen, kept.next = [np.zeros(size, np.int32) for size in self._sizes], 0
        while kept.next <= step:
            drawn, most = self._drawn(kept.next, kept), self._most(kept.next)
            for seen, each in zip(kept.seen, drawn, strict=True):
                # All of them: time must not reveal how many are in the batch.
                seen[... if len(each.rows) == len(seen) else each.rows] += each.taken
            kept.next += 1
        return [
            Draw(each.rows, each.taken & (_at(seen, each.rows) <= most))
            for seen, each in zip(kept.seen, drawn, strict=True)
        ]

    def _drawn(self, step: int, kept: _Drawn) -> list[Draw]:
        each = [*zip(self._seeds, self._firsts, self._sizes, strict=True)]
        rate, count, tag = self._sampling.rate, self._sampling.batches, self._tag
        if rate is not None:
            return [batches.poisson(seed, tag, first + step, rate, size) for seed, first, size in each]
        if count is None:
            return [batches.everybody(size) for size in self._sizes]
        place = step % count
        if kept.epoch != step - place:
            kept.parts, kept.epoch = [], step - place
            kept.parts += [batches.partition(seed, tag, at + kept.epoch, count, n) for seed, at, n in each]
        rows = [np.flatnonzero(own == place).astype(np.int32) for own in kept.parts]
        return [Draw(own, np.ones(len(own), np.bool_)) for own in rows]

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


def _batch_first(rows: Rows, counted: NDArray[np.bool_], room: int) -> Rows:
    """The rows that count, in order, then numbers beyond all rows: as many as there are rows, and `room`."""
    batch, filled = np.full(len(rows) + room, np.iinfo(rows.dtype).max, rows.dtype), 0
    for start in range(0, len(rows), _BLOCK):
        own, taken = rows[start : start + _BLOCK], counted[start : start + _BLOCK]
        size, ends = len(own), np.cumsum(taken)
        # The same work for every block: the others are written too, where nothing is read.
        packed = np.full(2 * size, batch[-1])
        packed[np.where(taken, ends - 1, size + np.arange(size))] = own
        batch[filled : filled + size] = packed[:size]
        filled += int(ends[-1])
    return batch


def _padded(rows: Rows, size: int, rng: Randomness) -> tuple[Rows, NDArray[np.bool_]]:
    """As many rows of a shard of this size, in order, and which count: those of `rows` that it has.

    Neither the length of any array nor the order of what is sorted depends on how many those are.
    """
    own, width = rows < size, len(rows)
    if width >= size:
        counted = np.zeros(2 * size, np.bool_)
        counted[np.where(own, rows, size + np.arange(size))] = True
        return batches.places(size), counted[:size]
    # Random ones: reading the same row again and again would take less time than reading the batch.
    drawn = rng.below(size << _ORDER_BITS, width)
    # Else sorting would find the batch in order, at once.
    order = np.argsort(drawn & ((1 << _ORDER_BITS) - 1))
    keys = np.sort(np.where(own[order], rows[order], drawn >> _ORDER_BITS) << 1 | own[order])
    return (keys >> 1).astype(np.int32), (keys & 1).astype(np.bool_)
