"""Being told to end: what a command has started ends with it, and the exit code says by which signal.

Run around commands that start services. Ctrl-C is a KeyboardInterrupt anyway; a signal to end, or a closed
terminal, becomes one too: else the services would outlive the command.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Told(KeyboardInterrupt):
    """Another signal than Ctrl-C told this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def code(error: KeyboardInterrupt) -> int:
    """The exit code, as shells have it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (error.number if isinstance(error, Told) else signal.SIGINT)


@contextmanager
def in_order() -> Iterator[None]:
    """Signals to end raise, so that every `with` inside is left; afterwards they do what they did before."""
    # One that is ignored stays so: whoever typed `nohup` wants it to run on.
    heard = [each for each in _ENDS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {each: signal.signal(each, _raise) for each in heard}
    try:
        yield
    except Told as told:
        typer.echo("interrupted", err=True)
        raise typer.Exit(code(told)) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise Told(number)
