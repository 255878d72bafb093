"""How commands fail: in one line that says what to do, not in a traceback."""

import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from maskedlark.errors import MaskedLarkError
from maskedlark.web import logs

Given = ParamSpec("Given")


def plainly(command: Callable[Given, None]) -> Callable[Given, None]:
    """An error of ours is one clear line and exit code 1, not a traceback."""

    @wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise  # Typer's own words about a command line.
        except MaskedLarkError as error:
            line = " ".join(f"{type(error).__name__}: {error}".split())
            typer.echo(line, err=True)
            raise typer.Exit(1) from None
        except OSError as error:
            typer.echo(f"{error.filename or 'input or output'}: {error.strerror}", err=True)
            raise typer.Exit(1) from None
        except Exception as error:
            if logs.is_configured():
                raise  # A service's log says where it was.
            # Where, and not what it said: nobody has checked that its words hold no key and no password.
            frames = "".join(traceback.format_tb(error.__traceback__))
            typer.echo(f"{frames}{type(error).__name__}: a mistake of ours; please report it", err=True)
            raise typer.Exit(1) from None

    return run
