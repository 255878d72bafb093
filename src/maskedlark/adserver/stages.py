"""What a client is waiting for, for whoever watches. Run on the ad server's machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHOW: ContextVar[Callable[[str], object] | None] = ContextVar("show", default=None)


def at(stage: str) -> None:
    """Say what is done from now on, if somebody watches this thread."""
    if (show := _SHOW.get()) is not None:
        show(stage)


@contextmanager
def shown(show: Callable[[str], object]) -> Iterator[None]:
    """Have stages said to this, while the block runs."""
    before = _SHOW.set(show)
    try:
        yield
    finally:
        _SHOW.reset(before)
