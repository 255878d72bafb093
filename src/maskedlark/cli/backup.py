"""`maskedlark helper backup`, `restore` and `recover`: a helper's disk may be lost, its budgets may not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.cli.plainly import plainly
from maskedlark.cli.receipts import read_lines
from maskedlark.cli.saying import Json, say
from maskedlark.clock import SECONDS_AN_HOUR, SystemClock
from maskedlark.helper import backup as backups
from maskedlark.helper import config as configuration
from maskedlark.helper import recovery
from maskedlark.helper.recovery import Recovered, RecoveryOptions
from maskedlark.randomness import SystemRandomness

ConfigFile = Annotated[Path, typer.Option("--config", help="The helper's settings, in TOML.")]


def hang_into(app: typer.Typer) -> None:
    """Add the commands to `maskedlark helper`."""
    app.command(epilog="Example: maskedlark helper backup --config helper-0/helper.toml --to backups/monday")(
        backup
    )
    app.command(
        epilog="Example: maskedlark helper restore --config helper-0/helper.toml --from backups/monday"
    )(restore)
    app.command(
        epilog="Example: maskedlark helper recover --config helper-0/helper.toml --receipts kept.jsonl"
    )(recover)


@plainly
def backup(
    config: ConfigFile,
    to: Annotated[Path, typer.Option("--to", help="The new folder of the backup.")],
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Its keys too: whoever has them can open reports.")
    ] = False,
    dumped: Annotated[
        bool, typer.Option("--dumped", help="The database is a server's, and was dumped just before.")
    ] = False,
    earlier: Annotated[
        Path | None, typer.Option("--earlier", help="A backup beside it: what is the same is linked.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy the helper while it runs. The copy is as secret as the helper; the anchor is not in it."""
    made = backups.back_up(
        configuration.read(config), to.absolute(), SystemClock(), with_keys, dumped, earlier
    )
    size = sum(each.size for each in made.files.values())
    said = f"{len(made.files)} files, {size} bytes, in {to}"
    say({"files": len(made.files), "bytes": size, "folder": str(to)}, as_json, said)


@plainly
def restore(
    config: ConfigFile,
    source: Annotated[Path, typer.Option("--from", help="The folder of the backup.")],
    as_json: Json = False,
) -> None:
    """Put a backup's files back, each checked. The helper starts when it was recovered."""
    made = backups.put_back(configuration.read(config), source)
    said = f"{len(made.files)} files of {_when(made.taken)} are back"
    say({"files": len(made.files), "taken": made.taken, "database": made.database}, as_json, said)
    if made.database == "server":
        typer.echo("put the dump of its database back with pg_restore", err=True)
    typer.echo("collect the receipts of since then, then run `maskedlark helper recover`", err=True)


@plainly
def recover(
    config: ConfigFile,
    receipts: Annotated[
        list[Path],
        typer.Option("--receipts", help="Receipts of this helper, as ad servers keep them. Repeat for more."),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    close: Annotated[
        list[str],
        typer.Option("--close", help="An origin whose missing receipts nobody has: all counts as spent."),
    ] = [],  # noqa: B006
    anchor_lost: Annotated[
        bool, typer.Option("--anchor-lost", help="The anchor is lost too: all counts as spent, for everyone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring a ledger that was put back up to what was signed since. A budget is never reset."""
    settings, clock = configuration.read(config), SystemClock()
    found = [signed for path in receipts for signed in read_lines(path)]
    if anchor_lost or close:
        typer.confirm(
            f"Close for good what {'all origins' if anchor_lost else ', '.join(close)} published until now?",
            abort=True,
            err=True,
        )
    published = recovery.shown_by(settings, clock)
    asked = RecoveryOptions(anchor_lost, close)
    done = recovery.recover(settings, found, asked, published, clock, SystemRandomness())
    say(_fields(done), as_json, *_said(done))


def _fields(done: Recovered) -> dict[str, object]:
    """The same for programs."""
    return {
        "put_back": dict(done.put_back),
        "datasets_lost": dict(done.lost),
        "closed": dict(done.closed),
        "aborted": done.aborted,
        "refused_before_hour": done.floor,
    }


def _said(done: Recovered) -> list[str]:
    """What was done, a line each."""
    said = [
        f"{origin}: {count} receipts put back, {done.lost[origin]} datasets are lost"
        for origin, count in done.put_back.items()
    ]
    said += [
        f"{origin}: closed up to version {version}; publish a new one"
        for origin, version in done.closed.items()
    ]
    if done.aborted:
        said.append(f"{done.aborted} datasets that were not sealed are aborted")
    if done.floor is not None:
        said.append(f"reports of before {_when((done.floor + 1) * SECONDS_AN_HOUR)} are refused")
    return said or ["nothing was lost"]


def _when(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
