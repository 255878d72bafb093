"""How commands are declared and how they fail: with one line that says what to do, and an exit code."""

import traceback
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn, ParamSpec

import typer

from maskedlark.adserver.errors import HelperAway
from maskedlark.cli import signals
from maskedlark.compute.errors import WorkersLost
from maskedlark.errors import MaskedLarkError
from maskedlark.helper.errors import Busy
from maskedlark.ledger.errors import AccountClosed, BudgetExhausted, DeltaExhausted, SlotTaken
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.training.errors import OverCeiling
from maskedlark.web import logs
from maskedlark.web.errors import ServiceAway

Given = ParamSpec("Given")

REFUSED, OVER_BUDGET, AWAY = 1, 3, 4
CODES: dict[int, tuple[type[MaskedLarkError], ...]] = {
    OVER_BUDGET: (AccountClosed, BudgetExhausted, DeltaExhausted, OverCeiling),
    AWAY: (Busy, HelperAway, ServiceAway, SlotTaken, StorageUnavailable, WorkersLost),
}
"""Other classes use the code of their nearest ancestor; without one, that of a refusal."""


def group(name: str, example: str, note: str = "") -> typer.Typer:
    """A group of commands, described in `maskedlark.cli`."""
    epilog = "\n\n".join(filter(None, [f"Example: maskedlark {name} {example}", note]))
    return typer.Typer(name=name, epilog=epilog, no_args_is_help=True)


def command(app: typer.Typer, example: str) -> Callable[[Callable[Given, None]], Callable[Given, None]]:
    """Add a command whose help shows the example; its name is the example's first word."""
    within = f"{app.info.name} " if app.info.name else ""
    name, epilog = example.split(maxsplit=1)[0], f"Example: maskedlark {within}{example}"

    def add(function: Callable[Given, None]) -> Callable[Given, None]:
        return app.command(name, epilog=epilog)(report_errors(function))

    return add


def import_extra(module: str, what: str, extras: str, error: type[MaskedLarkError]) -> Any:  # noqa: ANN401
    """Import a module of an extra when needed: it takes seconds to load, or is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise error(f"{what} needs {missing.name}: install maskedlark with its {extras}") from None


def exit_code(error: type[MaskedLarkError]) -> int:
    """The exit code of a maskedlark error. 2 is reserved for invalid command lines."""
    named = (code for each in error.__mro__ for code, classes in CODES.items() if each in classes)
    return next(named, REFUSED)


def report_errors(function: Callable[Given, None]) -> Callable[Given, None]:
    """Turn maskedlark errors into one clear line and an exit code, not a traceback."""

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise  # Typer reports invalid command lines itself.
        except KeyboardInterrupt as error:
            _fail("interrupted", signals.exit_code(error))
        except MaskedLarkError as error:
            _fail(" ".join(f"{type(error).__name__}: {error}".split()), exit_code(type(error)))
        except OSError as error:
            _fail(f"{error.filename or 'input or output'}: {error.strerror}", REFUSED)
        except Exception as error:
            if logs.is_configured():
                raise  # The service's log shows where it happened.
            # Where, but not the message, which might contain a key or a password.
            frames = "".join(traceback.format_tb(error.__traceback__))
            _fail(f"{frames}{type(error).__name__}: a mistake of ours; please report it", REFUSED)

    return run


def _fail(line: str, code: int) -> NoReturn:
    typer.echo(line, err=True)
    raise typer.Exit(code) from None
