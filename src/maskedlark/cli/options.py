"""Options shared by several commands, and the `serve` command of every service."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from maskedlark.cli.error_handling import command
from maskedlark.compute import child_process
from maskedlark.web import logs
from maskedlark.web.config import Serving

Json = Annotated[bool, Option("--json", help="For programs: one JSON object.")]
AdServerConfig = Annotated[Path, Option("--config", help="The ad server's adserver.toml.")]
HelperConfig = Annotated[Path, Option("--config", help="The helper's settings, in TOML.")]
HelperCount = Annotated[int, Option(min=2, max=8, help="How many helpers share every secret.")]
MostEpsilon = Annotated[float | None, Option(min=0, help="The most that it may cost.")]
Noise = Annotated[float | None, Option(min=0, help="Or how much noise; else the least.")]
Several = list[str] | None
"""An option that may be repeated."""
Text = str | None
NewFolder = Annotated[Path, Argument(help="The new folder for its settings and data.")]
_ADDRESS = "The parameter service's address."
Service = Annotated[str, Option("--service", help=_ADDRESS)]
ServiceOrNone = Annotated[Text, Option("--service", help=_ADDRESS)]
ParameterService = Annotated[Text, Option("--parameter-service", help=_ADDRESS)]
_SERVICE_KEY = Option("--service-key", help="The service's public key, from its operator.")
ServiceKey = Annotated[str, _SERVICE_KEY]
ServiceKeyOrNone = Annotated[Text, _SERVICE_KEY]
Origins = Annotated[
    list[str], Option("--origin", help="NAME=KEY of an ad server's first document key. Repeat for more.")
]
Listening = Callable[[Serving], Serving]
"""Applies the command line to the settings of where to listen."""
Serve = Callable[[Path, Listening], None]


def serve_command(app: typer.Typer, party: str, example: str) -> Callable[[Serve], Serve]:
    """Declare a party's `serve`, called with the path of its settings and a `Listening`."""

    def add(run: Serve) -> Serve:
        def serve(
            config: Annotated[Path, Option(help=f"The {party}'s settings, in TOML.")],
            host: Annotated[Text, Option(help="The address to listen on, if not the settings'.")] = None,
            port: Annotated[
                int | None,
                Option(min=0, max=65_535, help="The port, if not the settings'; 0 is any free one."),
            ] = None,
            log_level: Annotated[
                Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
                Option(case_sensitive=False, help="The least that is worth a line."),
            ] = "INFO",
            stop_with_input: Annotated[
                bool,
                Option(
                    "--stop-with-input", help="Stop when standard input ends: with a program that holds it."
                ),
            ] = False,
        ) -> None:
            # First of all: the logs of every service, and files that only their owner can read.
            logs.configure(app.info.name or party, log_level)
            os.umask(0o077)
            if stop_with_input:
                child_process.stop_with_input()
            changed = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
            run(config, lambda settings: settings.model_copy(update=changed))

        serve.__doc__ = run.__doc__
        command(app, f"serve --config {example}")(serve)
        return run

    return add
