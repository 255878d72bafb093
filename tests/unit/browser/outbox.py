"""An outbox in memory that remembers what became of every report."""

import threading
from collections.abc import Callable, Sequence

from maskedlark.browser import Outbox


class MemoryOutbox(Outbox):
    """What a browser's outbox must do, without a disk."""

    def __init__(self, reports: Sequence[bytes]) -> None:
        self.waiting = dict(enumerate(reports))
        self.acknowledged: dict[int, bytes] = {}
        self.refusals: dict[int, str] = {}
        self.on_acknowledge: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def batch(self, most: int) -> list[tuple[int, bytes]]:
        with self._lock:
            return list(self.waiting.items())[:most]

    def acknowledge(self, keys: Sequence[int]) -> None:
        with self._lock:
            for key in keys:
                self.acknowledged[key] = self.waiting.pop(key)
        self.on_acknowledge()

    def refuse(self, key: int, reason: str) -> None:
        with self._lock:
            del self.waiting[key]
            self.refusals[key] = reason
