"""`maskedlark datasets`: select reports for datasets, send them to all helpers, list and abort them."""

import sys
from datetime import UTC, datetime
from typing import Annotated

from typer import Argument, Option

from maskedlark.adserver import dates, sending
from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset
from maskedlark.cli.error_handling import command, group
from maskedlark.cli.options import AdServerConfig, Json, Text
from maskedlark.cli.output import print_result
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared

app = group("datasets", "list --config adserver.toml")
Name = Annotated[str, Argument(help="The dataset's name.")]
When = Annotated[Text, Option(help="As in 2026-11-01, 2026-11-01T12:00+01:00, or seconds.")]


@command(app, "list --config adserver.toml")
def list_(config: AdServerConfig, as_json: Json = False) -> None:
    """Show every dataset: when, how many reports, and what helpers refused."""
    with Client.from_config(config) as client:
        datasets = [(each, client.refusals(each.name)) for each in client.datasets()]
    fields = {"datasets": [_fields(*each) for each in datasets]}
    print_result(fields, as_json, *("\n  ".join(_lines(*each)) for each in datasets))


@command(app, "select monday --config adserver.toml --start 2026-11-02 --end 2026-11-03")
def select(
    name: Name,
    config: AdServerConfig,
    start: When = None,
    end: When = None,
    purpose: Annotated[Purpose, Option(help="Of the reports.")] = Purpose.AGGREGATE,
    parameters: Annotated[Text, Option(help="The digest of their document; else the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Fix what was received in a time that is over. Without a start it follows the dataset before."""
    digest = None if parameters is None else _digest(parameters)
    with Client.from_config(config) as client:
        selected = client.select(name, _seconds(start), _seconds(end), purpose, digest)
    line = f"{selected.name}: {selected.reports} reports to {selected.selection.purpose}, {_span(selected)}"
    print_result(_fields(selected, {}), as_json, line)


@command(app, "send monday --config adserver.toml")
def send(name: Name, config: AdServerConfig, as_json: Json = False) -> None:
    """Send a dataset to all helpers and freeze what all accept. Interrupted, it carries on when run again."""
    with Client.from_config(config) as client:
        with sending.bars(sys.stderr.isatty()) as progress:
            sent = client.send(name, progress)
        refusals = client.refusals(name)
    line = f"{sent.name}: {sent.records} of {sent.reports} reports frozen at every helper"
    print_result(_fields(sent, refusals), as_json, line, *_refused(refusals))


@command(app, "abort monday --config adserver.toml")
def abort(
    name: Name,
    config: AdServerConfig,
    give_up: Annotated[
        bool, Option("--give-up", help="Also if some helper has frozen it: its reports are lost then.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take a dataset back that no helper has frozen: its reports are free for another."""
    with Client.from_config(config) as client:
        keeping = client.abort(name, give_up)
    given_up = f"given up; its reports stay taken at {', '.join(keeping)}, and answer nothing"
    fields = {"name": name, "taken_at": list(keeping)}
    print_result(fields, as_json, f"{name}: {given_up if keeping else 'aborted'}")


def _span(dataset: Dataset) -> str:
    start, end = (dates.format_utc(each) for each in (dataset.selection.start, dataset.selection.end))
    return f"from {start} until {end} UTC"


def _fields(dataset: Dataset, refusals: dict[str, dict[str, int]]) -> dict[str, object]:
    """A dataset for programs."""
    span = dataset.selection
    return {
        "name": dataset.name,
        "state": dataset.state.value,
        "purpose": span.purpose.value,
        "parameters": span.parameters.hex(),
        "start": dates.iso(span.start),
        "end": dates.iso(span.end),
        "reports": dataset.reports,
        "records": dataset.records,
        "digest": None if dataset.digest is None else dataset.digest.hex(),
        "refused": refusals,
    }


def _lines(dataset: Dataset, refusals: dict[str, dict[str, int]]) -> list[str]:
    """A dataset for a reader."""
    count = f"{dataset.reports}" if dataset.records is None else f"{dataset.records} of {dataset.reports}"
    head = f"{dataset.name}  {dataset.state}  {count} reports to {dataset.selection.purpose}"
    return [head, _span(dataset), *_refused(refusals)]


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
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotDeclared(f"{text!r} is no time: write 2026-11-01, 2026-11-01T12:00, or seconds") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _digest(text: str) -> bytes:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise NotDeclared(f"{text[:80]!r} is no digest: give the 64 hexadecimal digits of a document")
    return bytes.fromhex(text)
