"""Options shared by several commands, and the `serve` command of every service."""

import os
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

import typer
from typer import Argument, Option

from maskedlark.cli import signals
from maskedlark.cli.error_handling import command, report_errors
from maskedlark.compute import child_process
from maskedlark.web import logs
from maskedlark.web.config import Serving

if TYPE_CHECKING:
    from fastapi import FastAPI

    from maskedlark.web.serving import Inherited

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
Listen = Callable[["FastAPI"], None]
"""Serves an app until it is told to stop."""


class ServedConfig(Protocol):
    """The settings of a party that serves."""

    serving: Serving

    @property
    def database_url(self) -> str:
        """Where it keeps what it knows."""

    def __iter__(self) -> Generator[tuple[str, Any], None, None]:
        """Names and values, as of every model."""


Settings = TypeVar("Settings", bound=ServedConfig)
Run = Callable[[Settings, Listen], None]


def serve_command(
    app: typer.Typer, party: str, example: str, read: Callable[[Path], Settings]
) -> Callable[[Run[Settings]], Run[Settings]]:
    """Declare a party's `serve`, called with its settings and a `Listen`, in every process of several."""

    def add(run: Run[Settings]) -> Run[Settings]:
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
            signals.before_serving()
            # First of all: the logs of every service, and files that only their owner can read.
            service = app.info.name or party
            logs.configure(service, log_level)
            os.umask(0o077)
            if stop_with_input:
                child_process.stop_with_input()
            changed = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
            from maskedlark.web import processes, reloading, serving  # noqa: PLC0415 - only `serve` needs a server

            settings = read(config)
            reload = partial(reloading.reload, partial(read, config), dict(settings))
            place = settings.serving.model_copy(update=changed)
            processes.refuse_file(place, settings.database_url)
            if place.processes == 1:
                run(settings, partial(serving.serve, settings=place, reload=reload))
                return
            child = partial(_child, service, log_level, run, settings, place, reload)
            raise typer.Exit(processes.supervise(place, child))

        serve.__doc__ = run.__doc__
        command(app, f"serve --config {example}")(serve)
        return run

    return add


def _child(
    service: str,
    log_level: str,
    run: Run[Settings],
    settings: Settings,
    place: Serving,
    reload: Callable[["FastAPI"], None],
    inherited: "Inherited",
) -> None:
    """One of several processes. It fails as a command does."""
    from maskedlark.web import serving  # noqa: PLC0415

    signals.before_serving()
    logs.configure(service, log_level)
    try:
        report_errors(run)(
            settings, partial(serving.serve, settings=place, inherited=inherited, reload=reload)
        )
    except typer.Exit as end:
        sys.exit(end.exit_code)
