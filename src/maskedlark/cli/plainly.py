"""How commands fail: in one line that says what to do, not in a traceback."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from maskedlark.errors import MaskedLarkError

Given = ParamSpec("Given")


def plainly(command: Callable[Given, None]) -> Callable[Given, None]:
    """An error of ours is one clear line and exit code 1, not a traceback."""

    @wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except MaskedLarkError as error:
            line = " ".join(f"{type(error).__name__}: {error}".split())
            typer.echo(line, err=True)
            raise typer.Exit(1) from None
        except OSError as error:
            typer.echo(f"{error.filename or 'input or output'}: {error.strerror}", err=True)
            raise typer.Exit(1) from None

    return run
