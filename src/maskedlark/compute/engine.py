"""The interface of all engines, and the one that every other must equal: this process."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int], None]


def no_progress(_done: int) -> None:
    """Show nothing."""


class Engine(ABC):
    """Runs pure functions; what comes back is the same whatever runs them. Threads may share it.

    Functions are at the top of a module. They may run more than once for one item, when a worker ends; items
    and results are pickled. An error reaches the caller as it was raised; nothing of an item is ever logged.
    """

    workers: int
    is_elsewhere: bool = False
    """Whether workers may be on other machines, which reach other folders."""

    @abstractmethod
    def map(
        self,
        function: Callable[[C, T], R],
        common: C,
        items: Sequence[T],
        progress: Progress = no_progress,
    ) -> list[R]:
        """`function(common, item)` for every item; results in the order of items.

        Item i runs on worker i modulo `workers`, which may keep what it has decoded. So a check of every
        worker is a `map` over `range(workers)`. `common` is pickled once, and goes to each worker once.
        `progress` is called in this thread with the number of items done. Of several errors the one of the
        first item is raised.
        """

    @abstractmethod
    def run(self, function: Callable[[T], R], item: T) -> R:
        """`function(item)` on the worker that is least busy."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, once they have finished the items that they are at."""


class SerialEngine(Engine):
    """This process, one item at a time."""

    workers = 1

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def map(
        self,
        function: Callable[[C, T], R],
        common: C,
        items: Sequence[T],
        progress: Progress = no_progress,
    ) -> list[R]:
        """One after the other, in this thread, as other threads do meanwhile."""
        results = []
        for item in items:
            results.append(function(common, item))
            progress(len(results))
        return results

    def run(self, function: Callable[[T], R], item: T) -> R:
        """In this thread, when no other thread does: items may take much memory each."""
        with self._lock:
            return function(item)

    def close(self) -> None:
        """Nothing to end."""
