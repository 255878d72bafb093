"""Waiting for other processes. No assertion is about time; who waits for so long has failed."""

import time
from collections.abc import Callable

PATIENCE_S = 60.0


class Broken(AssertionError):
    """Something that must hold does not."""


def end() -> float:
    """When patience ends."""
    return time.monotonic() + PATIENCE_S


def wait_until(is_so: Callable[[], bool], every_s: float = 0.001) -> None:
    """Return when it is so."""
    last = end()
    while not is_so():
        if time.monotonic() > last:
            raise Broken("what was waited for does not come")
        time.sleep(every_s)
