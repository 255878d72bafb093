"""Ingest: chunks opened into columns, in processes of their own. Run by a helper.

HPKE takes nearly all of a helper's time, and one Python process uses one core of it. So chunks go to worker
processes, which open them and write what they hold; the process that asked claims the ids and answers.
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.sharing import ByteRows
from maskedlark.helper import chunk_file
from maskedlark.helper.errors import IngestInterrupted
from maskedlark.wire import uploads
from maskedlark.wire.acceptance import DatasetOpener
from maskedlark.wire.codec import MOST_BYTES
from maskedlark.wire.datasets import MOST_PARTS
from maskedlark.wire.decrypt import decrypt_parts


class Job(NamedTuple):
    """A chunk to open: with what, its bytes, and the dataset's folder."""

    opener: DatasetOpener
    body: bytes
    folder: Path


class Taken(NamedTuple):
    """What could be opened of a chunk: nothing is claimed yet."""

    file: str
    accepted: NDArray[np.bool_]
    """One truth value a part."""
    refused: dict[str, int]
    ids: ByteRows
    """Of the accepted ones, as the hours."""
    hours: NDArray[np.uint32]


def take(job: Job) -> Taken:
    """Open a chunk and write its file, durably. Run by a worker."""
    parts = uploads.decode_batch(job.body, MOST_PARTS, MOST_BYTES)
    opened = decrypt_parts(job.opener, parts)
    file = chunk_file.write(job.folder, opened)
    verdicts = opened.verdicts
    return Taken(file, verdicts.accepted, dict(verdicts.refused), opened.ids, opened.hours)


class Ingest:
    """Workers, started when they are needed. Threads may share it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def take(self, job: Job) -> Taken:
        """Open a chunk; returns when its file is durable. With one worker, this thread is it."""
        if self._workers == 1:
            with self._turn:
                return take(job)
        pool = self._running()
        try:
            return pool.submit(take, job).result()
        except BrokenProcessPool:
            self._drop(pool)
            raise IngestInterrupted("the process that opened this chunk has ended; send it again") from None

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None

    def _running(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self._workers, multiprocessing.get_context("spawn"), _follow_the_parent
                )
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        """Let the next chunk have new workers."""
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)


def _follow_the_parent() -> None:
    """A helper that is killed leaves no worker behind, which holds its keys. Run by a worker."""
    # Ctrl-C reaches the whole group. The helper answers what is under way first, and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker was started by somebody"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
