"""How far a helper is with what takes long: pieces done, of a public number. For its log and its metrics.

Pieces are shards of a freeze, or of a query: who waits knows how many there are, and every one is visited
whatever is in it, also for a part that is hidden. Steps are not counted here: whoever trains counts them.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SAID_S = 2.0
"""How often it is logged."""
_log = logging.getLogger(__name__)


class UnderWay:
    """Everything that is under way in this process. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._all: dict[object, tuple[str, int, int]] = {}

    @contextmanager
    def counted(self, what: str, pieces: int) -> Iterator[Callable[[int], None]]:
        """Count the pieces of some work, while the block runs. Yields what takes the number that is done."""
        own, said = object(), self._clock()

        def progress(done: int) -> None:
            nonlocal said
            with self._lock:
                self._all[own] = what, done, pieces
            if (now := self._clock()) - said >= SAID_S:
                said = now
                _log.info("%s: %d of %d are done", what, done, pieces)

        with self._lock:
            self._all[own] = what, 0, pieces
        try:
            yield progress
        finally:
            with self._lock:
                del self._all[own]

    def figures(self) -> dict[tuple[str, ...], float]:
        """Pieces done and in all, by what is under way."""
        counts: Counter[tuple[str, ...]] = Counter()
        with self._lock:
            for what, done, pieces in self._all.values():
                counts[what, "done"] += done
                counts[what, "all"] += pieces
        return {name: float(count) for name, count in counts.items()}


UNDER_WAY = UnderWay()
"""Of this process: a helper."""
