"""What all `serve` commands share: where to listen, and what to do before anything else."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.web import logs
from maskedlark.web.config import Serving


class Level(StrEnum):
    """How much is logged, as `web/logs.py` names it."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


Host = Annotated[str | None, typer.Option("--host", help="The address to listen on, if not the settings'.")]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65_535, help="The port, if not the settings'; 0 is any free one."),
]
LogLevel = Annotated[
    Level, typer.Option("--log-level", case_sensitive=False, help="The least that is worth a line.")
]
NewFolder = Annotated[Path, typer.Argument(help="The new folder for its settings and data.")]
ServiceAddress = Annotated[
    str | None, typer.Option("--parameter-service", help="The parameter service's address.")
]
ServiceKey = Annotated[
    str | None, typer.Option("--service-key", help="The service's public key, from its operator.")
]
Origins = Annotated[
    list[str],
    typer.Option("--origin", help="NAME=KEY of an ad server's first document key. Repeat for more."),
]


def begin(service: str, level: Level) -> None:
    """Logs as every service has them, and files that are for their owner alone. First thing of all."""
    logs.configure(service, level.value)
    os.umask(0o077)


def listening(settings: Serving, host: str | None, port: int | None) -> Serving:
    """The settings, but for what the command line says."""
    said = {"host": host, "port": port}
    return settings.model_copy(update={name: value for name, value in said.items() if value is not None})
