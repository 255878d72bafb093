"""How commands fail: in one line that says what to do, not in a traceback, and with a code for scripts."""

import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from maskedlark.adserver.errors import HelperAway
from maskedlark.errors import MaskedLarkError
from maskedlark.helper.errors import Busy, IngestInterrupted
from maskedlark.ledger.errors import AccountClosed, BudgetExhausted, DeltaExhausted, SlotTaken
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.training.errors import OverCeiling
from maskedlark.web import logs
from maskedlark.web.errors import ServiceAway

Given = ParamSpec("Given")

REFUSED, OVER_BUDGET, AWAY, INTERRUPTED = 1, 3, 4, 130
CODES: dict[type[MaskedLarkError], int] = {
    AccountClosed: OVER_BUDGET,
    BudgetExhausted: OVER_BUDGET,
    DeltaExhausted: OVER_BUDGET,
    OverCeiling: OVER_BUDGET,
    Busy: AWAY,
    HelperAway: AWAY,
    IngestInterrupted: AWAY,
    ServiceAway: AWAY,
    SlotTaken: AWAY,
    StorageUnavailable: AWAY,
}
"""A class that is not here takes the code of its nearest ancestor; without any, it is a refusal."""


def code(error: type[MaskedLarkError]) -> int:
    """The exit code of an error of ours. 2 is the command line's own."""
    return next((CODES[each] for each in error.__mro__ if each in CODES), REFUSED)


def plainly(command: Callable[Given, None]) -> Callable[Given, None]:
    """An error of ours is one clear line and an exit code, not a traceback."""

    @wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise  # Typer's own words about a command line.
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except MaskedLarkError as error:
            line = " ".join(f"{type(error).__name__}: {error}".split())
            typer.echo(line, err=True)
            raise typer.Exit(code(type(error))) from None
        except OSError as error:
            typer.echo(f"{error.filename or 'input or output'}: {error.strerror}", err=True)
            raise typer.Exit(REFUSED) from None
        except Exception as error:
            if logs.is_configured():
                raise  # A service's log says where it was.
            # Where, and not what it said: nobody has checked that its words hold no key and no password.
            frames = "".join(traceback.format_tb(error.__traceback__))
            typer.echo(f"{frames}{type(error).__name__}: a mistake of ours; please report it", err=True)
            raise typer.Exit(REFUSED) from None

    return run
