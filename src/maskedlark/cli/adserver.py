"""`maskedlark adserver`: set one up, and run the process that takes uploads."""

from pathlib import Path
from typing import Annotated

import typer

from maskedlark.adserver import config as configuration
from maskedlark.adserver import skeleton
from maskedlark.adserver.app import create_app
from maskedlark.adserver.upkeep import upkeep
from maskedlark.cli import running
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.clock import SystemClock
from maskedlark.privacy.document import Origin
from maskedlark.privacy.settings import PublicKey
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports
from maskedlark.storage.retention import DAY_S, Retention
from maskedlark.web import config, key_file, serving
from maskedlark.web import skeleton as settings_file

KEY = "origin.key"
app = typer.Typer(
    name="adserver",
    help="An ad server takes reports that it cannot read: set it up, run it. To measure: datasets, query.",
    epilog="Example: maskedlark adserver serve --config ads/adserver.toml",
    no_args_is_help=True,
)


@app.command(
    epilog="Example: maskedlark adserver init ads --origin ads.example "
    "--parameter-service https://parameters.example --service-key 3b6a…"
)
@plainly
def init(
    folder: running.NewFolder,
    origin: Annotated[str, typer.Option("--origin", help="Whose reports it takes, as in ads.example.")],
    parameter_service: running.ServiceAddress = None,
    service_key: running.ServiceKey = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Its signing key, if there is one; else one is made.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a folder, settings to fill in, and a signing key. Prints the key's public half."""
    config.check("--origin", Origin, origin)
    if parameter_service is not None:
        config.check("--parameter-service", config.Address, parameter_service)
    if service_key is not None:
        config.check("--service-key", PublicKey, service_key)
    path = settings_file.place(folder, skeleton.FILE)
    signing = key_file.read(key) if key else key_file.create(folder / KEY, SystemRandomness())
    public = signing.verifying.public.hex()
    where = key.absolute() if key else Path(KEY)
    settings_file.write(path, skeleton.text(origin, where, public, parameter_service, service_key))
    say({"config": str(path), "public_key": public}, as_json, public)
    typer.echo(f"fill in {path}, then run `maskedlark adserver serve`", err=True)


@app.command(epilog="Example: maskedlark adserver serve --config ads/adserver.toml --port 8000")
@plainly
def serve(
    config: Annotated[Path, typer.Option("--config", help="The ad server's settings, in TOML.")],
    host: running.Host = None,
    port: running.Port = None,
    log_level: running.LogLevel = running.Level.INFO,
) -> None:
    """Take uploads. Prints where it listens; SIGINT or SIGTERM stops it. Needs no signing key."""
    running.begin("adserver", log_level)
    settings, clock = configuration.read(config), SystemClock()
    database = open_database(settings.database)
    try:
        reports = Reports(database, clock)
        retention = Retention(database, settings.keep_days * DAY_S, settings.most_leap_days * DAY_S)
        made = create_app(settings.origin, reports, clock, settings.limits)
        with upkeep(retention, clock):
            serving.serve(made, running.listening(settings.serving, host, port))
    finally:
        database.close()
