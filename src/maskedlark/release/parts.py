"""Some of a model's records: a batch, or what is held out of all batches. Run by a helper.

The amount of work must not reveal what the ad server does not know. So the number of records computed over,
across all datasets, is public; those that do not count have shares of 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import batches
from maskedlark.core.batches import Draw, Rows
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.sampling import Sampling
from maskedlark.functions.function import Part
from maskedlark.wire.steps import Ranges

# All steps of an epoch share its order; all steps of a session share the held-out records.
_partition = lru_cache(maxsize=4)(batches.partition)
_held_out = lru_cache(maxsize=16)(batches.held_out)


@dataclass(frozen=True, repr=False)
class Work:
    """The rows of every dataset to compute over, and which of them count."""

    rows: tuple[Rows, ...]
    """By dataset. The total row count is public."""
    counted: NDArray[np.bool_]
    """For all rows, in the order of the datasets."""

    def at_least(self, k: int) -> "Work":
        """The same work, in which no row counts if fewer than k do."""
        return Work(self.rows, self.counted & (np.count_nonzero(self.counted) >= k))

    def gather(self, datasets: Sequence[Records]) -> TrainingRecords:
        """All rows as one set of records, in this order, with their shares."""
        found = [take(records, rows) for records, rows in zip(datasets, self.rows, strict=True)]
        return found[0] if len(found) == 1 else _joined(found)

    def only_counted(self, gathered: TrainingRecords) -> TrainingRecords:
        """The same rows; those that do not count add 0 to every sum."""
        shares = gathered.shares * self.counted[:, None]
        return TrainingRecords(gathered.ids, gathered.features, gathered.candidates, shares)


def of_part(part: Part, seeds: Sequence[bytes], tag: str, sizes: Sequence[int]) -> Work:
    """The records of a part."""
    draws = []
    for seed, size in zip(seeds, sizes, strict=True):
        out = _held_out(seed, tag, part.held_out, size)
        draws.append(Draw(np.arange(size), out if part.which == "held_out" else ~out))
    return _filled(draws, batches.room(part.share, sum(sizes)))


class Batches:
    """The batches of one session's steps. One thread at a time uses it.

    A record is left out of all batches beyond those that its session's charge states. That depends on the
    seed alone, and hardly ever happens (`session_charge.announced`).
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
                Draw(each.rows, each.taken & ~_held_out(seed, self._tag, out, size)[each.rows])
                for each, seed, size in zip(drawn, self._seeds, self._sizes, strict=True)
            ]
        if self._sampling.kind == "chosen":
            drawn = self._chosen(drawn, chosen)
        return _filled(drawn, self._room(drawn))

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
                seen[each.rows] += each.taken  # All of them: time must not reveal how many are in the batch.
            self._next += 1
        return [
            Draw(each.rows, each.taken & (seen[each.rows] <= most))
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
            rows = _partition(seed, self._tag, first + step - place, sampling.batches, size)[place]
            return Draw(rows, np.ones(len(rows), np.bool_))
        return batches.everybody(size)

    def _chosen(self, drawn: Sequence[Draw], chosen: Ranges) -> list[Draw]:
        """The records that a step names, numbered across all datasets."""
        named = np.zeros(sum(self._sizes), np.bool_)
        for start, stop in chosen:
            named[start:stop] = True
        ends = np.cumsum([0, *self._sizes])
        wanted = [named[ends[place] + each.rows] for place, each in enumerate(drawn)]
        return [Draw(each.rows[own], each.taken[own]) for each, own in zip(drawn, wanted, strict=True)]

    def _room(self, drawn: Sequence[Draw]) -> int:
        """The number of rows to compute over; for batches that are not Poisson it includes those held out."""
        if self._sampling.rate is None:
            return sum(len(each.rows) for each in drawn)
        return self._sampling.most(self._sizes)


def forget() -> None:
    """Drop drawn orders, which hold seeds. Run by a helper, every hour."""
    _partition.cache_clear()
    _held_out.cache_clear()


def take(records: Records, rows: Rows | range) -> TrainingRecords:
    """Only these records, in order."""
    assert isinstance(records, TrainingRecords), "only records to train have parts"
    shown = tuple(each if len(each) == 1 else each[rows] for each in records.candidates)
    return TrainingRecords(records.ids[rows], records.features[rows], shown, records.shares[rows])


def _filled(drawn: Sequence[Draw], most: int) -> Work:
    """`most` rows in all, taken ones first: a surplus is rare, and every helper leaves it out alike."""
    taken = np.concatenate([each.taken for each in drawn])
    order = np.sort(np.argsort(~taken, kind="stable")[:most])
    ends = np.cumsum([0, *(len(each.rows) for each in drawn)])
    cuts = np.searchsorted(order, ends)
    rows = tuple(
        each.rows[order[cuts[place] : cuts[place + 1]] - ends[place]] for place, each in enumerate(drawn)
    )
    return Work(rows, taken[order])


def _joined(found: Sequence[TrainingRecords]) -> TrainingRecords:
    """Records of several datasets as one."""
    sizes = [len(records) for records in found]
    return TrainingRecords(
        np.concatenate([records.ids for records in found]),
        np.concatenate([records.features for records in found]),
        tuple(_shown(each, sizes) for each in zip(*(records.candidates for records in found), strict=True)),
        np.concatenate([records.shares for records in found]),
    )


def _shown(candidates: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> NDArray[np.int64]:
    """One label's candidates: one row if all records show the same, else one row per record."""
    if all(len(each) == 1 and np.array_equal(each, candidates[0]) for each in candidates):
        return candidates[0]
    wide = zip(candidates, sizes, strict=True)
    return np.concatenate([np.broadcast_to(each, (size, each.shape[1])) for each, size in wide])
