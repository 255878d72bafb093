"""Options that several commands have, and what they mean to every `serve`."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from maskedlark.web import logs
from maskedlark.web.listening import Serving

Json = Annotated[bool, Option("--json", help="For programs: one JSON object.")]
AdServerConfig = Annotated[Path, Option("--config", help="The ad server's adserver.toml.")]
HelperConfig = Annotated[Path, Option("--config", help="The helper's settings, in TOML.")]
HelperCount = Annotated[int, Option(min=2, max=8, help="How many helpers share every secret.")]
MostEpsilon = Annotated[float | None, Option(min=0, help="The most that it may cost.")]
Noise = Annotated[float | None, Option(min=0, help="Or how much noise; else the least.")]
Several = list[str] | None
"""An option that may be repeated."""
NewFolder = Annotated[Path, Argument(help="The new folder for its settings and data.")]
_ADDRESS = "The parameter service's address."
Service = Annotated[str, Option("--service", help=_ADDRESS)]
ServiceOrNone = Annotated[str | None, Option("--service", help=_ADDRESS)]
ParameterService = Annotated[str | None, Option("--parameter-service", help=_ADDRESS)]
_SERVICE_KEY = Option("--service-key", help="The service's public key, from its operator.")
ServiceKey = Annotated[str, _SERVICE_KEY]
ServiceKeyOrNone = Annotated[str | None, _SERVICE_KEY]
Origins = Annotated[
    list[str], Option("--origin", help="NAME=KEY of an ad server's first document key. Repeat for more.")
]


class Level(StrEnum):
    """How much is logged, as `web/logs.py` names it."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


Host = Annotated[str | None, Option("--host", help="The address to listen on, if not the settings'.")]
Port = Annotated[
    int | None, Option("--port", min=0, max=65_535, help="The port, if not the settings'; 0 is any free one.")
]
LogLevel = Annotated[
    Level, Option("--log-level", case_sensitive=False, help="The least that is worth a line.")
]


def begin(service: str, level: Level) -> None:
    """Logs as every service has them, and files that are for their owner alone. First thing of all."""
    logs.configure(service, level.value)
    os.umask(0o077)


def listening(settings: Serving, host: str | None, port: int | None) -> Serving:
    """The settings, but for what the command line says."""
    given = {"host": host, "port": port}
    return settings.model_copy(update={name: value for name, value in given.items() if value is not None})
