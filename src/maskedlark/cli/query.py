"""`maskedlark query`: sums and counts by group, with what they cost; or what they would cost."""

import json
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.adserver.client import CONFIDENCE, Client
from maskedlark.adserver.question import Between
from maskedlark.cli.plainly import plainly
from maskedlark.core.records import Entry
from maskedlark.privacy.errors import BadArguments

EXAMPLE = (
    "Example: maskedlark query --config adserver.toml --group-by campaign --value purchase --value count "
    "--where campaign=spring,autumn --where age=18..30 --epsilon 0.5"
)
Config = Annotated[Path, typer.Option("--config", help="The ad server's adserver.toml.")]


@plainly
def query(
    config: Config,
    value: Annotated[
        list[str], typer.Option("--value", help="What to add up; `count` counts records. Repeat for more.")
    ],
    group_by: Annotated[
        list[str] | None,
        typer.Option("--group-by", help="Keys, with commas between; repeat for another table."),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="key=a,b or key=18..30: only such records count.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="Over this one; repeat for more. Else all sealed.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(min=0, help="The most that it may cost.")] = None,
    noise: Annotated[float | None, typer.Option(min=0, help="Or how much noise; else the least.")] = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="Of the intervals.")] = CONFIDENCE,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it would cost; spend nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Ask the helpers for sums by group. Shows errors, intervals, the cost, and what is left."""
    by = [keys.split(",") for keys in group_by] if group_by else [()]
    filters = parse_where(where or [])
    with Client.from_config(config) as client:
        asked = (value, [tuple(keys) for keys in by], filters, dataset, noise, epsilon, confidence)
        if explain:
            found = client.explain(*asked)
            typer.echo(found.to_json() if as_json else str(found))
            return
        tables = client.query(*asked)
    if as_json:
        typer.echo(json.dumps([json.loads(table.to_json()) for table in tables], ensure_ascii=False))
    else:
        typer.echo("\n\n".join(map(str, tables)))


def parse_where(texts: list[str]) -> dict[str, list[Entry] | Between]:
    """Filters as they stand on the command line."""
    found: dict[str, list[Entry] | Between] = {}
    for text in texts:
        key, is_there, wanted = text.partition("=")
        if not is_there or not key or not wanted:
            raise BadArguments(f"{text!r} is no filter: write key=a,b or key=18..30")
        if key in found:
            raise BadArguments(f"two filters on {key}: write key=a,b to allow several entries")
        found[key] = _between(text, wanted) if ".." in wanted else _among(wanted)
    return found


def _between(text: str, wanted: str) -> Between:
    least, _, most = wanted.partition("..")
    try:
        return Between(int(least) if least else None, int(most) if most else None)
    except ValueError:
        raise BadArguments(f"{text!r} has no whole numbers around its two dots: write key=18..30") from None


def _among(wanted: str) -> list[Entry]:
    """Every entry as text, and as a number where it is one: the command line cannot tell which was meant."""
    texts = wanted.split(",")
    numbers = [int(text) for text in texts if text.removeprefix("-").isdecimal() and str(int(text)) == text]
    return [*texts, *numbers]
