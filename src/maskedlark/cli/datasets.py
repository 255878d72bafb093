"""`maskedlark datasets`: freeze reports into datasets, send them to all helpers, list and abort them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from maskedlark.adserver import dates, sending
from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared

app = typer.Typer(
    name="datasets",
    help="Reports that never change: freeze them, send them to all helpers, list, abort.",
    epilog="Example: maskedlark datasets list --config adserver.toml",
    no_args_is_help=True,
)
Config = Annotated[Path, typer.Option("--config", help="The ad server's adserver.toml.")]
Name = Annotated[str, typer.Argument(help="The dataset's name.")]
When = Annotated[str | None, typer.Option(help="As in 2026-11-01, 2026-11-01T12:00+01:00, or seconds.")]


@app.command("list", epilog="Example: maskedlark datasets list --config adserver.toml")
@plainly
def list_(config: Config, as_json: Json = False) -> None:
    """Show every dataset: when, how many reports, and what helpers refused."""
    with Client.from_config(config) as client:
        found = [(each, client.refusals(each.name)) for each in client.datasets()]
    if as_json:
        typer.echo(json.dumps({"datasets": [_fields(*each) for each in found]}))
        return
    for each, refusals in found:
        typer.echo("\n  ".join([_head(each), _span(each), *_refused(refusals)]))


@app.command(
    epilog="Example: maskedlark datasets freeze monday --config adserver.toml "
    "--start 2026-11-02 --end 2026-11-03"
)
@plainly
def freeze(
    name: Name,
    config: Config,
    start: When = None,
    end: When = None,
    purpose: Annotated[Purpose, typer.Option(help="Of the reports.")] = Purpose.AGGREGATE,
    parameters: Annotated[
        str | None, typer.Option("--parameters", help="The digest of their document; else the newest.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fix what was received in a time that is over. Without a start it follows the dataset before."""
    digest = None if parameters is None else _digest(parameters)
    with Client.from_config(config) as client:
        found = client.freeze(name, _seconds(start), _seconds(end), purpose, digest)
    if as_json:
        typer.echo(json.dumps(_fields(found, {})))
    else:
        typer.echo(f"{found.name}: {found.reports} reports to {found.selection.purpose}, {_span(found)}")


@app.command(epilog="Example: maskedlark datasets send monday --config adserver.toml")
@plainly
def send(name: Name, config: Config, as_json: Json = False) -> None:
    """Send a dataset to all helpers and seal what all accept. Interrupted, it carries on when run again."""
    with Client.from_config(config) as client:
        with _bars() as progress:
            found = client.send(name, progress)
        refusals = client.refusals(name)
    if as_json:
        typer.echo(json.dumps(_fields(found, refusals)))
        return
    typer.echo(f"{found.name}: {found.records} of {found.reports} reports sealed at every helper")
    for line in _refused(refusals):
        typer.echo(line)


@app.command(epilog="Example: maskedlark datasets abort monday --config adserver.toml")
@plainly
def abort(
    name: Name,
    config: Config,
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="Also if some helper has sealed it: its reports are lost then."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Take a dataset back that no helper has sealed: its reports are free for another."""
    with Client.from_config(config) as client:
        keeping = client.abort(name, give_up)
    said = f"given up; its reports stay taken at {', '.join(keeping)}, and answer nothing"
    say({"name": name, "taken_at": list(keeping)}, as_json, f"{name}: {said if keeping else 'aborted'}")


@contextmanager
def _bars() -> Iterator[sending.Progress]:
    """A bar a helper, where someone is watching; they are no part of the output."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:

        def progress(helper: str, sent: int, reports: int) -> None:
            if helper not in bars:
                bars[helper] = shown.add_task(escape(helper), total=reports)
            shown.update(bars[helper], completed=sent)

        yield progress


def _head(found: Dataset) -> str:
    records = f"{found.reports}" if found.records is None else f"{found.records} of {found.reports}"
    return f"{found.name}  {found.state}  {records} reports to {found.selection.purpose}"


def _span(found: Dataset) -> str:
    return f"from {dates.shown(found.selection.start)} until {dates.shown(found.selection.end)} UTC"


def _fields(found: Dataset, refusals: dict[str, dict[str, int]]) -> dict[str, object]:
    """A dataset for programs."""
    span = found.selection
    return {
        "name": found.name,
        "state": found.state.value,
        "purpose": span.purpose.value,
        "parameters": span.parameters.hex(),
        "start": dates.iso(span.start),
        "end": dates.iso(span.end),
        "reports": found.reports,
        "records": found.records,
        "digest": None if found.digest is None else found.digest.hex(),
        "refused": refusals,
    }


def _refused(refusals: dict[str, dict[str, int]]) -> list[str]:
    return [
        f"{helper} refused {', '.join(f'{count} ({reason})' for reason, count in sorted(counts.items()))}"
        for helper, counts in refusals.items()
        if counts
    ]


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        if text.isdecimal():
            return int(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NotDeclared(f"{text!r} is no time: write 2026-11-01, 2026-11-01T12:00, or seconds") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _digest(text: str) -> bytes:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise NotDeclared(f"{text[:80]!r} is no digest: give the 64 hexadecimal digits of a document")
    return bytes.fromhex(text)
