"""Threads for long work: origins take turns, however much work one has waiting."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]
"""The future to complete, and the work."""


class FairScheduler:
    """Threads for one kind of work. Run by a helper.

    A free thread serves the origin with the fewest running; ties rotate. One origin has at most `workers` of
    the threads, and there is one more: an origin with none running waits only if two others have them all.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._most = workers
        self._pool = ThreadPoolExecutor(workers + 1, name)
        self._waiting: dict[str, deque[_Job]] = {}
        """By origin; the one served last is at the end."""
        self._working: Counter[str] = Counter()
        self._lock = threading.Lock()

    async def run(self, origin: str, work: Callable[[], T]) -> T:
        """What the work returns, after waiting for its turn."""
        answer: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(origin, deque()).append((answer, work))
        self._pool.submit(self._work)
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        """Work while any is waiting: the thread that ends one job finds the next."""
        origin = None
        while (turn := self._next(origin)) is not None:
            origin, (answer, work) = turn
            if not answer.set_running_or_notify_cancel():
                continue  # The caller has gone.
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the caller gets any error, whatever it is
                answer.set_exception(error)
            del answer, work, turn  # Else its body would be held until this thread has more to do.

    def _next(self, done: str | None) -> tuple[str, _Job] | None:
        with self._lock:
            if done is not None:
                self._working -= Counter([done])
            ready = [each for each in self._waiting if self._working[each] < self._most]
            if not ready:
                return None
            origin = min(ready, key=self._working.__getitem__)
            jobs = self._waiting.pop(origin)
            job = jobs.popleft()
            if jobs:
                self._waiting[origin] = jobs
            self._working[origin] += 1
            return origin, job
