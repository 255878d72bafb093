"""Signals that end a process: what a command has started ends with it, and the exit code names the signal.

Run around commands that start services. Ctrl-C raises KeyboardInterrupt anyway; SIGTERM and SIGHUP do too
here: else the services would outlive the command.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Another signal than Ctrl-C told this process to end: its number is the argument."""


def exit_code(error: KeyboardInterrupt) -> int:
    """As shells have it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + int(error.args[0] if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Signals to end raise, so that every `with` inside is left; afterwards they do what they did before."""
    # One that is ignored stays so: whoever typed `nohup` wants it to run on.
    handled = [each for each in _ENDS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {each: signal.signal(each, _raise) for each in handled}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise Terminated(number)
