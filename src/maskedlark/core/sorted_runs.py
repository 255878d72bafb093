"""Merging what is too much to be sorted at once. Run by helpers and the ad server."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Texts = NDArray[np.bytes_]
"""Strings of one length. Never read as Python bytes: that would strip trailing zeros."""


def merged(runs: Sequence[Texts], block: int) -> Iterator[Texts]:
    """Sorted runs as one, in pieces of about this many."""
    total = sum(map(len, runs))
    # Of each run as large a part as of all. Fixed, so that the pieces are few, whatever is in the runs.
    steps = [max(1, len(run) * block // max(1, total)) for run in runs]
    starts = [0] * len(runs)
    while any(start < len(run) for start, run in zip(starts, runs, strict=True)):
        stops = [start + step for start, step in zip(starts, steps, strict=True)]
        heads = [run[slice(*each)] for run, *each in zip(runs, starts, stops, strict=True)]
        # Up to the least that ends a head: nothing before it is still to come.
        ends = [run[stop - 1] for run, stop in zip(runs, stops, strict=True) if stop < len(run)]
        if ends:
            heads = [head[: np.searchsorted(head, min(ends), side="right")] for head in heads]
        starts = [start + len(head) for start, head in zip(starts, heads, strict=True)]
        yield np.sort(np.concatenate(heads), kind="stable")
