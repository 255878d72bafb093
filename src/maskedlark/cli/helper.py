"""`maskedlark helper`: set one up, rotate its keys, publish them, run it; back it up and recover it."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from maskedlark.cli import options
from maskedlark.cli.error_handling import command, group
from maskedlark.cli.options import HelperConfig, Json, Listen, serve_command
from maskedlark.cli.output import print_result
from maskedlark.cli.receipts import read_lines
from maskedlark.clock import SECONDS_AN_HOUR, Clock, SystemClock
from maskedlark.helper import backup as backups
from maskedlark.helper import config as configuration
from maskedlark.helper import recovery
from maskedlark.helper.anchor import open_anchor
from maskedlark.helper.app import create_app
from maskedlark.helper.config import Config, InitOptions
from maskedlark.helper.keyring import DAY_S, Keyring, Span
from maskedlark.helper.ledger_database import open_ledger_database
from maskedlark.helper.recovery import Recovered, RecoveryOptions
from maskedlark.helper.service import open_service
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Origin
from maskedlark.parameters.meaning import moment
from maskedlark.randomness import SystemRandomness
from maskedlark.web import key_file
from maskedlark.web import skeleton as settings_file
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import NotThere
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import API, Remote
from maskedlark.wire import keys
from maskedlark.wire.keys import KEYS_TYPE
from maskedlark.wire.signatures import VerifyingKey

_log = logging.getLogger(__name__)
app = group("helper", "serve --config helper-0/helper.toml")


@command(app, "init helper-0 --name helper-0 --address https://helper-0.example --identity helper-0.key")
def init(
    folder: options.NewFolder,
    name: Annotated[str, Option(help="Its name, as documents will name it.")],
    address: Annotated[str, Option(help="Where ad servers will reach it.")],
    identity: Annotated[Path | None, Option(help="Make an identity key too, in this new file.")] = None,
    parameter_service: options.ParameterService = None,
    service_key: options.ServiceKeyOrNone = None,
    origins: options.Origins = [],  # noqa: B006 - typer reads it and never changes it
    trusted: Annotated[
        list[str], Option("--trust", help="The identity of a helper that it trusts. Repeat for more.")
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a folder and settings to fill in. Prints the identity's public half if one is made."""
    pinned = settings_file.pinned("--origin", origins, Origin)
    options = InitOptions(name, address, parameter_service, service_key, pinned, trusted)
    path = settings_file.place(folder, configuration.FILE)
    public = key_file.create(identity, SystemRandomness()).verifying.public.hex() if identity else None
    settings_file.write(path, options.skeleton_text(public))
    print_result({"config": str(path), "identity": public}, as_json, *([public] if public else []))
    typer.echo(f"fill in {path}, then run `maskedlark helper rotate`", err=True)


@command(app, "rotate --config helper-0/helper.toml --identity helper-0.key")
def rotate(
    config: HelperConfig,
    identity: Annotated[Path, Option(help="The file of its identity. Keep it off the machine that answers.")],
    valid_days: Annotated[int, Option(min=1, max=3650, help="Days until the next rotation is due.")] = 30,
    overlap_days: Annotated[
        int, Option(min=1, max=3650, help="Days more for which these keys are published.")
    ] = 30,
    publishing: Annotated[
        bool, Option("--publish/--no-publish", help="Hand them to the parameter service.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Make new keys, beside the old ones, and publish them. A running helper takes them up by itself."""
    settings, signing = configuration.read(config), key_file.read(identity)
    if publishing:
        _check_clock(settings, SystemClock())
    span = Span(valid_days * DAY_S, overlap_days * DAY_S)
    least = _published_sequence(settings, signing.verifying) + 1 if publishing else 0
    keyring, now = _keyring(settings), SystemClock().now()
    made = keyring.rotate(signing, settings.address, now, SystemRandomness(), span, least)
    published = [_publish(settings)] if publishing else []
    line = f"{settings.name} has new keys, sequence {made.sequence}, {len(made.keys)} published"
    fields = {"helper": settings.name, "sequence": made.sequence, "keys": len(made.keys)}
    print_result({**fields, "published": publishing}, as_json, line, *published)


@command(app, "publish --config helper-0/helper.toml")
def publish(config: HelperConfig, as_json: Json = False) -> None:
    """Hand the keys that there are to the parameter service. Safe to repeat; needs no identity."""
    settings = configuration.read(config)
    fields = {"helper": settings.name, "published_at": settings.parameter_service}
    print_result(fields, as_json, _publish(settings))


@serve_command(app, "helper", "helper-0/helper.toml --port 8001", configuration.read)
def serve(settings: Config, listen: Listen) -> None:
    """Run the helper. Prints where it listens; SIGINT or SIGTERM stops it. Needs no identity."""
    if settings.own_compute.engine == "ray":
        _log.info("connecting to %d workers of a cluster, which may take 90 s", settings.own_compute.workers)
    with open_service(settings, SystemClock(), SystemRandomness()) as service:
        listen(create_app(service))


@command(app, "accept-ledger --config helper-0/helper.toml")
def accept_ledger(config: HelperConfig, as_json: Json = False) -> None:
    """Begin the anchor anew from the ledger as it is. Only if the anchor was lost, and the ledger was not.

    From an old copy of the ledger this would spend budgets twice.
    """
    settings = configuration.read(config)
    typer.confirm("Is this surely the newest ledger, and no copy that was put back?", abort=True, err=True)
    with open_ledger_database(settings) as database, open_anchor(settings, database) as anchor:
        ledger = Ledger(database, anchor, _keyring(settings), SystemClock(), SystemRandomness())
        origins = ledger.reset_anchors()
    line = f"anchored {', '.join(origins) or 'nothing: the ledger is empty'}"
    print_result({"anchored": list(origins)}, as_json, line)


@command(app, "backup --config helper-0/helper.toml --to backups/monday")
def backup(
    config: HelperConfig,
    to: Annotated[Path, Option(help="The new folder of the backup.")],
    with_keys: Annotated[
        bool, Option("--with-keys", help="Its keys too: whoever has them can open reports.")
    ] = False,
    dumped: Annotated[
        bool, Option("--dumped", help="The database is a server's, and was dumped just before.")
    ] = False,
    earlier: Annotated[Path | None, Option(help="A backup beside it: what is the same is linked.")] = None,
    as_json: Json = False,
) -> None:
    """Copy the helper while it runs. The copy is as secret as the helper; the anchor is not in it."""
    settings = configuration.read(config)
    made = backups.back_up(settings, to.absolute(), SystemClock(), with_keys, dumped, earlier)
    size = sum(each.size for each in made.files.values())
    fields = {"files": len(made.files), "bytes": size, "folder": str(to)}
    print_result(fields, as_json, f"{len(made.files)} files, {size} bytes, in {to}")


@command(app, "restore --config helper-0/helper.toml --from backups/monday")
def restore(
    config: HelperConfig,
    source: Annotated[Path, Option("--from", help="The folder of the backup.")],
    as_json: Json = False,
) -> None:
    """Put a backup's files back, each checked. The helper starts when it was recovered."""
    made = backups.put_back(configuration.read(config), source)
    fields = {"files": len(made.files), "taken": made.taken, "database": made.database}
    print_result(fields, as_json, f"{len(made.files)} files of {moment(made.taken)} are back")
    if made.database == "server":
        typer.echo("put the dump of its database back with pg_restore", err=True)
    typer.echo("collect the receipts of since then, then run `maskedlark helper recover`", err=True)


@command(app, "recover --config helper-0/helper.toml --receipts kept.jsonl")
def recover(
    config: HelperConfig,
    receipts: Annotated[
        list[Path], Option(help="Receipts of this helper, as ad servers keep them. Repeat for more.")
    ] = [],  # noqa: B006 - typer reads it and never changes it
    close: Annotated[
        list[str], Option(help="An origin whose missing receipts nobody has: all counts as spent.")
    ] = [],  # noqa: B006
    anchor_lost: Annotated[
        bool, Option("--anchor-lost", help="The anchor is lost too: all counts as spent, for everyone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring a ledger that was put back up to what was signed since. A budget is never reset."""
    settings, clock = configuration.read(config), SystemClock()
    if not _check_clock(settings, clock).is_confirmed:
        typer.confirm(f"Nothing confirms this clock. Is it {moment(clock.now())}?", abort=True, err=True)
    signed = [receipt for path in receipts for receipt in read_lines(path)]
    if anchor_lost or close:
        whose = "all origins" if anchor_lost else ", ".join(close)
        typer.confirm(f"Close for good what {whose} published until now?", abort=True, err=True)
    asked, published = RecoveryOptions(anchor_lost, close), partial(recovery.shown_by, settings, clock)
    done = recovery.recover(settings, signed, asked, published, clock, SystemRandomness())
    fields = {
        "put_back": done.put_back,
        "datasets_lost": done.lost,
        "closed": done.closed,
        "aborted": done.aborted,
        "refused_before_hour": done.floor,
    }
    print_result(fields, as_json, *(list(_recovered(done)) or ["nothing was lost"]))


def _check_clock(settings: Config, clock: Clock) -> ClockCheck:
    """Compare it. Refuse a clock that the parameter service contradicts: what is written by it stays."""
    service = settings.parameter_service, settings.service_key_public, settings.parameters_folder
    with ParameterClient(*service, clock, {}) as parameters:
        check = ClockCheck(clock, parameters, SystemRandomness())
        check.compare()
        check.check()
    return check


def _keyring(settings: Config) -> Keyring:
    return Keyring(settings.keys_folder, settings.name, settings.keep_days * DAY_S)


def _publish(settings: Config) -> str:
    with Remote(settings.parameter_service) as remote:
        remote.post(f"{API}/keys", _keyring(settings).configuration, KEYS_TYPE, {"helper": settings.name})
    return f"published at {settings.parameter_service}"


def _published_sequence(settings: Config, identity: VerifyingKey) -> int:
    """The last published sequence number: a helper that lost its keys must not start again at 1."""
    with suppress(NotThere), Remote(settings.parameter_service) as remote:
        message = remote.get(f"{API}/keys", {"helper": settings.name})
        return keys.verify(message, settings.name, identity).sequence
    return 0


def _recovered(done: Recovered) -> Iterator[str]:
    """What was done, line by line."""
    for origin, count in done.put_back.items():
        yield f"{origin}: {count} receipts put back, {done.lost[origin]} datasets are lost"
    for origin, version in done.closed.items():
        yield f"{origin}: closed up to version {version}; publish a new one"
    if done.aborted:
        yield f"{done.aborted} datasets that were not frozen are aborted"
    if done.floor is not None:
        yield f"reports of before {moment((done.floor + 1) * SECONDS_AN_HOUR)} are refused"
