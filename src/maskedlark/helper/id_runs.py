"""A set of ids in sorted runs, for fast batch lookups. Run by a helper.

Long runs are mapped files without a name, which end with the process. They are merged and filtered block by
block: memory that cannot be given back does not grow with them.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.core.sorted_runs import merged

Names = NDArray[np.bytes_]
"""One 16-byte number per id. Never read as Python bytes: that would strip trailing zeros."""
MERGED = 8
"""Runs of one size are merged when there are this many."""
MAPPED = 1 << 20
"""A run of this many ids goes to a file."""
BLOCK = 1 << 19
"""Ids that are merged or filtered at once, about."""


def names(ids: ByteRows) -> Names:
    """Ids as numbers that can be sorted."""
    rows: Names = np.ascontiguousarray(ids).view(f"S{ID_BYTES}").ravel()
    return rows


class IdRuns:
    """Ids that can be added and removed. One thread at a time uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.runs: list[Names] = []

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(self, new: Names) -> None:
        """Add a run. Runs of similar size are merged, so that there are few."""
        if not len(new):
            return  # Of a chunk in which all reports were refused.
        runs = self.runs
        runs.append(np.sort(new))
        while len(runs) >= MERGED and len(runs[-MERGED]) < MERGED * len(runs[-1]):
            runs[-MERGED:] = [self._kept(merged(runs[-MERGED:], BLOCK), sum(map(len, runs[-MERGED:])))]

    def among(self, wanted: Names) -> NDArray[np.bool_]:
        """Which of these are in the set."""
        is_there = np.zeros(len(wanted), np.bool_)
        for run in self.runs:
            is_there |= _among(wanted, run)
        return is_there

    def remove(self, gone: "IdRuns") -> None:
        """Remove all of another set. Rewrites every run that has some."""
        for place, run in enumerate(self.runs):
            if any(_among(each, run).any() for other in gone.runs for each in _blocks(other)):
                stays = (each[~gone.among(each)] for each in _blocks(run))
                self.runs[place] = self._kept(stays, len(run))
        self.runs = [run for run in self.runs if len(run)]

    def _kept(self, blocks: Iterator[Names], at_most: int) -> Names:
        """A run in memory, or in a file if there may be many."""
        if at_most < MAPPED:
            return np.concatenate([np.empty(0, f"S{ID_BYTES}"), *blocks])
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for block in blocks:
                block.tofile(file)
            file.flush()
            length = file.tell() // ID_BYTES
            # An empty file cannot be mapped.
            return np.memmap(file, f"S{ID_BYTES}", "r") if length else np.empty(0, f"S{ID_BYTES}")


def _blocks(run: Names) -> Iterator[Names]:
    return (run[start : start + BLOCK] for start in range(0, len(run), BLOCK))


def _among(wanted: Names, run: Names) -> NDArray[np.bool_]:
    """Which of these are in a sorted run."""
    if not len(run):
        return np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
    return np.asarray(run[place] == wanted)
