"""The digest of a dataset whose reports come in any order. Run on the ad server's machine.

Heads are sorted some at a time, and what was sorted waits in files without a name in the system's folder for
such (`TMPDIR`), so that memory does not grow with the dataset.
"""

import tempfile

import numpy as np

from maskedlark.core.sharing import ByteRows
from maskedlark.core.sorted_runs import Texts, merged
from maskedlark.wire.datasets import DatasetDigest
from maskedlark.wire.report import HEAD_BYTES

HELD = 1 << 19
"""Heads in memory, at most."""


class SortedHeads:
    """Heads of reports. One thread at a time uses it."""

    def __init__(self) -> None:
        self._held: list[Texts] = []
        self._runs: list[Texts] = []
        self._waiting = self.count = 0

    def add(self, heads: ByteRows) -> None:
        """Add some, in any order."""
        self._held.append(np.ascontiguousarray(heads).view(f"S{HEAD_BYTES}").ravel())
        self._waiting, self.count = self._waiting + len(heads), self.count + len(heads)
        if self._waiting >= HELD:
            with tempfile.TemporaryFile() as file:
                self._sorted().tofile(file)
                file.flush()
                self._runs.append(np.memmap(file, f"S{HEAD_BYTES}", "r"))

    def digest(self, digest: DatasetDigest) -> bytes:
        """The dataset's digest, when all are added. A head begins with its id, by which they are sorted."""
        for heads in merged([*self._runs, self._sorted()], HELD):
            digest.update(heads.view(np.uint8).reshape(-1, HEAD_BYTES))
        return digest.digest()

    def _sorted(self) -> Texts:
        """What is held, which is held no more."""
        held = np.sort(np.concatenate([*self._held, np.empty(0, f"S{HEAD_BYTES}")]))
        self._held, self._waiting = [], 0
        return held
