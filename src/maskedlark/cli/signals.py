"""Signals that end a process: the services that a command started end with it.

Used by commands that start services. Ctrl-C raises KeyboardInterrupt anyway; here SIGTERM and SIGHUP do too,
or else the services would outlive the command. The exit code names the signal.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C ended this process: its number is the argument."""


def exit_code(error: KeyboardInterrupt) -> int:
    """The exit code by shell convention: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + int(error.args[0] if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Make these signals raise, so that every `with` inside is left; afterwards restore their handlers."""
    # Ignored signals stay ignored, as with `nohup`.
    handled = [each for each in _ENDS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {each: signal.signal(each, _raise) for each in handled}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def before_serving() -> None:
    """A signal to stop ends a service that starts at once, and is no failure; SIGHUP has no meaning yet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise Terminated(number)
