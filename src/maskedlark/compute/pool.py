"""Distributes items over workers. An item whose worker ended is run again, on the worker's replacement."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from queue import SimpleQueue
from typing import Any, TypeVar

from maskedlark.compute.engine import Engine, Progress, no_progress
from maskedlark.compute.errors import WorkersLost
from maskedlark.compute.task import NOTHING, Common, call_of, common_of, is_failure, result_of

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")

MAX_DEATHS = 3
"""How many workers one item may outlive: it may be what ends them."""
AHEAD = 2
"""Items of one `map` that a worker is given at once: it never waits, and other callers get their turns."""
STOPPING = "the workers are being stopped; send the same request again"
_log = logging.getLogger(__name__)


class WorkerDied(Exception):
    """A worker ended before it answered."""


class Worker(ABC):
    """A place where calls are performed, by one thread at a time."""

    @abstractmethod
    def perform(self, common: Common, call: bytes) -> bytes:
        """The outcome of a call. Starts the worker, or its replacement, if there is none."""

    @abstractmethod
    def close(self) -> None:
        """End the worker, if there is one."""


class _Lane:
    """A worker, the thread that waits for it, and how many calls are in its queue."""

    def __init__(self, worker: Worker, place: int) -> None:
        self.worker, self.place, self.queued = worker, place, 0
        self.thread = ThreadPoolExecutor(1, f"worker-{place}")

    def perform(self, common: Common, call: bytes) -> bytes:
        for _ in range(MAX_DEATHS):
            try:
                return self.worker.perform(common, call)
            except WorkerDied as death:
                # Its text is ours; nothing of the call is in it.
                _log.warning("worker %d ended (%s); its item is run again", self.place, str(death))
        raise WorkersLost(f"{MAX_DEATHS} workers ended while at it; send the same request again")


class PoolEngine(Engine):
    """Workers that are used over a thread each."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = len(workers)
        self._lanes = [_Lane(worker, place) for place, worker in enumerate(workers)]
        self._lock = threading.Lock()

    def map(
        self,
        function: Callable[[C, T], R],
        common: C,
        items: Sequence[T],
        progress: Progress = no_progress,
    ) -> list[R]:
        """As `Engine.map` says."""
        shared = common_of(common)
        results: dict[int, R] = {}
        failures: dict[int, bytes] = {}
        with closing(self._outcomes(function, shared, items)) as outcomes:
            for place, outcome in outcomes:
                if is_failure(outcome):
                    failures[place] = outcome
                    continue
                results[place] = result_of(outcome)
                progress(len(results))
        if failures:
            result_of(failures[min(failures)])
        return [results[place] for place in range(len(items))]

    def forget(self, common: Common) -> None:
        """Free what is kept for a `map` that is over."""

    def _outcomes(
        self, function: Callable[[C, T], R], common: Common, items: Sequence[T]
    ) -> Generator[tuple[int, bytes], None, None]:
        """Outcomes as they come. After an item that failed, only those before it in order are still run."""
        pending: dict[Future[bytes], int] = {}
        over: SimpleQueue[Future[bytes]] = SimpleQueue()
        end = len(items)

        def submit(place: int) -> None:
            if place < end:
                lane = self._lanes[place % self.workers]
                future = self._submit([lane], common, call_of(function, items[place]))
                pending[future] = place
                future.add_done_callback(over.put)

        try:
            for place in range(self.workers * AHEAD):
                submit(place)
            while pending:
                future = over.get()
                place, outcome = pending.pop(future), _outcome(future)
                if is_failure(outcome):
                    end = min(end, place)
                submit(place + self.workers * AHEAD)
                yield place, outcome
        finally:  # When this returns, nothing of the caller's runs any more.
            wait([future for future in pending if not future.cancel()])
            self.forget(common)

    def run(self, function: Callable[[T], R], item: T) -> R:
        """As `Engine.run` says."""
        result: R = result_of(_outcome(self._submit(self._lanes, NOTHING, call_of(function, item))))
        return result

    def _submit(self, lanes: Sequence[_Lane], common: Common, call: bytes) -> Future[bytes]:
        """Queue a call for the least busy of these workers."""
        with self._lock:
            lane = min(lanes, key=lambda each: each.queued)
            lane.queued += 1
        try:
            future = lane.thread.submit(lane.perform, common, call)
        except RuntimeError:
            raise WorkersLost(STOPPING) from None

        def done(_: Future[Any]) -> None:
            with self._lock:
                lane.queued -= 1

        future.add_done_callback(done)
        return future

    def close(self) -> None:
        """End all workers. Who waits for an item that has not begun is told to send it again."""
        for lane in self._lanes:
            lane.thread.shutdown(wait=False, cancel_futures=True)
        for lane in self._lanes:
            lane.thread.shutdown()
            lane.worker.close()


def _outcome(future: Future[bytes]) -> bytes:
    try:
        return future.result()
    except CancelledError:
        raise WorkersLost(STOPPING) from None
