"""`maskedlark adserver`: set one up, and run the process that takes uploads."""

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from maskedlark.adserver import config as configuration
from maskedlark.adserver.app import create_app
from maskedlark.adserver.config import Config
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.retention import DAY_S, Retention
from maskedlark.cli import options
from maskedlark.cli.error_handling import command, group
from maskedlark.cli.options import Json, Listen, Text, serve_command
from maskedlark.cli.output import print_result
from maskedlark.clock import SystemClock
from maskedlark.helper.folder_lock import only_process
from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import PublicKey
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import file_of, open_database
from maskedlark.web import config, key_file
from maskedlark.web import skeleton as settings_file
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import BadKeyFile
from maskedlark.wire.signatures import SigningKey

REQUEST_KEY, DOCUMENT_KEY = "request.key", "document.key"
app = group("adserver", "serve --config ads/adserver.toml")


@command(
    app,
    "init ads --origin ads.example --parameter-service https://parameters.example --service-key 3b6a…",
)
def init(
    folder: options.NewFolder,
    origin: Annotated[str, Option(help="Whose reports it takes, as in ads.example.")],
    parameter_service: options.ParameterService = None,
    service_key: options.ServiceKeyOrNone = None,
    key: Annotated[Path | None, Option(help="The file of its request key; else one is made.")] = None,
    origin_key: Annotated[Text, Option(help="Its public document key; else one is made.")] = None,
    as_json: Json = False,
) -> None:
    """Make a folder, settings to fill in, a document key and a request key. Prints their public halves."""
    config.check("--origin", Origin, origin)
    config.check("--parameter-service", config.Address, parameter_service)
    config.check("--service-key", PublicKey, service_key)
    config.check("--origin-key", PublicKey, origin_key)
    request_key = _public(key_file.read(key)) if key else None
    if request_key is not None and request_key == origin_key:
        raise BadKeyFile(f"{key} is the document key: leave --key out, and a request key is made")
    path = settings_file.place(folder, configuration.FILE)
    document_key = origin_key or _made(folder / DOCUMENT_KEY)
    request_key = request_key or _made(folder / REQUEST_KEY)
    said = origin, key.absolute() if key else Path(REQUEST_KEY), document_key, parameter_service, service_key
    settings_file.write(path, configuration.skeleton_text(*said))
    fields = {"config": str(path), "document_key": document_key, "request_key": request_key}
    print_result(fields, as_json, f"document key {document_key}", f"request key {request_key}")
    if origin_key is None:
        kept = folder / DOCUMENT_KEY
        typer.echo(f"{kept} signs documents, and nothing here needs it: move it off this machine", err=True)
    typer.echo(f"fill in {path}, then run `maskedlark adserver serve`", err=True)


@serve_command(app, "ad server", "ads/adserver.toml --port 8000", configuration.read)
def serve(settings: Config, listen: Listen) -> None:
    """Take uploads. Prints where it listens; SIGINT or SIGTERM stops it. Needs no key."""
    clock, file = SystemClock(), file_of(settings.database)
    with closing(open_database(settings.database, wait=True)) as database, ExitStack() as stack:
        if file is not None:
            stack.enter_context(only_process(file.parent, name=f".{file.name}.running"))
        reports = Reports(database, clock)
        retention = Retention(database, settings.keep_days * DAY_S)
        with settings.parameters(clock) as parameters:
            documents = partial(parameters.documents, settings.origin)
            check = ClockCheck(clock, parameters, SystemRandomness())
            with retention.running(clock, check):
                listen(create_app(settings.origin, reports, clock, documents, settings.limits, check))


def _made(path: Path) -> str:
    return _public(key_file.create(path, SystemRandomness()))


def _public(key: SigningKey) -> str:
    return key.verifying.public.hex()
