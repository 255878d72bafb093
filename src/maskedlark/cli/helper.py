"""`maskedlark helper`: set one up, rotate its keys, publish them, run it."""

from pathlib import Path
from typing import Annotated

import typer

from maskedlark.cli import backup, running
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.clock import SystemClock
from maskedlark.helper import config as configuration
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.app import CBOR_TYPE, create_app
from maskedlark.helper.config import Config, InitOptions
from maskedlark.helper.keyring import DAY_S, Keyring, Span
from maskedlark.helper.service import open_service
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Origin
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.web import key_file, serving
from maskedlark.web import skeleton as settings_file
from maskedlark.web.errors import NotThere
from maskedlark.web.remote import Remote
from maskedlark.wire import keys
from maskedlark.wire.signatures import VerifyingKey

app = typer.Typer(
    name="helper",
    help="A helper opens reports, enforces privacy, answers with shares: set it up, rotate keys, run it.",
    epilog="Example: maskedlark helper serve --config helper-0/helper.toml",
    no_args_is_help=True,
)

ConfigFile = Annotated[Path, typer.Option("--config", help="The helper's settings, in TOML.")]
Identity = Annotated[
    Path, typer.Option("--identity", help="The file of its identity. Keep it off the machine that answers.")
]
Days = Annotated[int, typer.Option(min=1, max=3650, help="Days until the next rotation is due.")]
Overlap = Annotated[int, typer.Option(min=1, max=3650, help="Days more for which these keys are published.")]


@app.command(
    epilog="Example: maskedlark helper init helper-0 --name helper-0 --address https://helper-0.example "
    "--identity helper-0.key"
)
@plainly
def init(
    folder: running.NewFolder,
    name: Annotated[str, typer.Option("--name", help="Its name, as documents will name it.")],
    address: Annotated[str, typer.Option("--address", help="Where ad servers will reach it.")],
    identity: Annotated[
        Path | None, typer.Option("--identity", help="Make an identity key too, in this new file.")
    ] = None,
    parameter_service: running.ServiceAddress = None,
    service_key: running.ServiceKey = None,
    origins: running.Origins = [],  # noqa: B006 - typer reads it and never changes it
    trusted: Annotated[
        list[str], typer.Option("--trust", help="The identity of a helper that it trusts. Repeat for more.")
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a folder and settings to fill in. Prints the identity's public half if one is made."""
    pinned = settings_file.pinned("--origin", origins, Origin)
    options = InitOptions(name, address, parameter_service, service_key, pinned, trusted)
    path = settings_file.place(folder, configuration.FILE)
    public = key_file.create(identity, SystemRandomness()).verifying.public.hex() if identity else None
    settings_file.write(path, options.skeleton_text(public))
    say({"config": str(path), "identity": public}, as_json, *([public] if public else []))
    typer.echo(f"fill in {path}, then run `maskedlark helper rotate`", err=True)


@app.command(epilog="Example: maskedlark helper rotate --config helper-0/helper.toml --identity helper-0.key")
@plainly
def rotate(
    config: ConfigFile,
    identity: Identity,
    valid_days: Days = 30,
    overlap_days: Overlap = 30,
    publishing: Annotated[
        bool, typer.Option("--publish/--no-publish", help="Hand them to the parameter service.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Make new keys, beside the old ones, and publish them. A running helper takes them up by itself."""
    settings, signing = configuration.read(config), key_file.read(identity)
    span = Span(valid_days * DAY_S, overlap_days * DAY_S)
    least = _published_sequence(settings, signing.verifying) + 1 if publishing else 0
    made = _keyring(settings).rotate(
        signing, settings.address, SystemClock().now(), SystemRandomness(), span, least
    )
    lines = [f"{settings.name} has new keys, sequence {made.sequence}, {len(made.keys)} published"]
    if publishing:
        lines.append(_publish(settings))
    fields = {"helper": settings.name, "sequence": made.sequence, "keys": len(made.keys)}
    say({**fields, "published": publishing}, as_json, *lines)


@app.command(epilog="Example: maskedlark helper publish --config helper-0/helper.toml")
@plainly
def publish(config: ConfigFile, as_json: Json = False) -> None:
    """Hand the keys that there are to the parameter service. Safe to repeat; needs no identity."""
    settings = configuration.read(config)
    said = _publish(settings)
    say({"helper": settings.name, "published_at": settings.parameter_service}, as_json, said)


@app.command(epilog="Example: maskedlark helper serve --config helper-0/helper.toml --port 8001")
@plainly
def serve(
    config: ConfigFile,
    host: running.Host = None,
    port: running.Port = None,
    log_level: running.LogLevel = running.Level.INFO,
) -> None:
    """Run the helper. Prints where it listens; SIGINT or SIGTERM stops it. Needs no identity."""
    running.begin("helper", log_level)
    settings = configuration.read(config)
    with open_service(settings, SystemClock(), SystemRandomness()) as service:
        serving.serve(create_app(service), running.listening(settings.serving, host, port))


@app.command(
    name="accept-ledger", epilog="Example: maskedlark helper accept-ledger --config helper-0/helper.toml"
)
@plainly
def accept_ledger(config: ConfigFile, as_json: Json = False) -> None:
    """Begin the anchor anew from the ledger as it is. Only if the anchor was lost, and the ledger was not.

    From an old copy of the ledger this would spend budgets twice.
    """
    settings = configuration.read(config)
    typer.confirm("Is this surely the newest ledger, and no copy that was put back?", abort=True, err=True)
    database = open_database(settings.database_url)
    try:
        anchor = FileAnchor(settings.anchor_folder)
        ledger = Ledger(database, anchor, _keyring(settings), SystemClock(), SystemRandomness())
        origins = ledger.accept()
    finally:
        database.close()
    said = f"anchored {', '.join(origins) or 'nothing: the ledger is empty'}"
    say({"anchored": list(origins)}, as_json, said)


backup.hang_into(app)


def _keyring(settings: Config) -> Keyring:
    return Keyring(settings.keys_folder, settings.name, settings.keep_days * DAY_S)


def _publish(settings: Config) -> str:
    message = _keyring(settings).configuration
    with Remote(settings.parameter_service) as remote:
        remote.post("/v1/keys", message, CBOR_TYPE, {"helper": settings.name})
    return f"published at {settings.parameter_service}"


def _published_sequence(settings: Config, identity: VerifyingKey) -> int:
    """How far the published configurations got: a helper that lost its keys must not begin at 1 again."""
    with Remote(settings.parameter_service) as remote:
        try:
            message = remote.get("/v1/keys", {"helper": settings.name})
        except NotThere:
            return 0
    return keys.verify(message, settings.name, identity).sequence
