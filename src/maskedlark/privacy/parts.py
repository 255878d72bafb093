"""Some of a dataset's records: a batch, or what is kept out of all batches. Run by a helper."""

from functools import lru_cache

import numpy as np

from maskedlark.core import batches
from maskedlark.core.batches import Rows
from maskedlark.core.records import Records, Trained
from maskedlark.privacy.function import Part
from maskedlark.privacy.sampling import Sampling

# All steps of an epoch have its order in common, and all steps of a session who is held out.
_partition = lru_cache(maxsize=4)(batches.partition)
_held_out = lru_cache(maxsize=16)(batches.held_out)


def rows_of(part: Part, seed: bytes, tag: str, records: int) -> Rows:
    """The places of a part's records."""
    out = _held_out(seed, tag, part.held_out, records)
    return np.flatnonzero(out if part.which == "held_out" else ~out)


def batch(sampling: Sampling, seed: bytes, tag: str, first: int, step: int, records: int) -> Rows:
    """Who is in a step's batch. `first` is the slot of the session's first step in this dataset."""
    drawn = _drawn(sampling, seed, tag, first, step, records)
    if sampling.held_out == 0:
        return drawn
    return drawn[~_held_out(seed, tag, sampling.held_out, records)[drawn]]


def _drawn(sampling: Sampling, seed: bytes, tag: str, first: int, step: int, records: int) -> Rows:
    if sampling.rate is not None:
        return batches.poisson(seed, tag, first + step, sampling.rate, records)
    if sampling.batches is not None:
        place = step % sampling.batches
        return _partition(seed, tag, first + step - place, sampling.batches, records)[place]
    return np.arange(records)


def take(records: Records, rows: Rows | range) -> Trained:
    """These records alone, in order."""
    assert isinstance(records, Trained), "only records to train have parts"
    shown = tuple(each if len(each) == 1 else each[rows] for each in records.candidates)
    return Trained(records.ids[rows], records.features[rows], shown, records.shares[rows])
