"""`maskedlark query`: sums and counts by group, with what they cost; or what they would cost."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from maskedlark.adserver import dates
from maskedlark.adserver.client import CONFIDENCE, Client
from maskedlark.adserver.query_arguments import Between, Options
from maskedlark.adserver.requests import StoredRequest
from maskedlark.adserver.table import Table
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.core.records import Entry
from maskedlark.errors import BadArguments
from maskedlark.release import messages

EXAMPLE = (
    "Example: maskedlark query --config adserver.toml --group-by campaign --value purchase --value count "
    "--where campaign=spring,autumn --where age=18..30 --epsilon 0.5"
)
Config = Annotated[Path, typer.Option("--config", help="The ad server's adserver.toml.")]


app = typer.Typer(add_completion=False)


@app.command("query", epilog=EXAMPLE)
@plainly
def query(
    config: Config,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="What to add up; `count` counts records. Repeat for more."),
    ] = None,
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
    pending: Annotated[
        bool, typer.Option("--pending", help="List questions that were begun and not answered.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Finish this request, or show its answer again.")
    ] = None,
    forget: Annotated[
        str | None, typer.Option("--forget", help="Let go of this request; what was charged stays charged.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask the helpers for sums by group. Shows errors, intervals, the cost, and what is left."""
    if sum([bool(value), pending, resume is not None, forget is not None]) != 1:
        raise typer.BadParameter("give one of --value, --pending, --resume and --forget")
    by: list[tuple[str, ...]] = [tuple(keys.split(",")) for keys in group_by] if group_by else [()]
    filters = parse_where(where or [])
    with Client.from_config(config) as client:
        if pending:
            _list(client.pending(), as_json)
        elif forget is not None:
            client.forget(forget)
            say({"forgotten": forget}, as_json)
            typer.echo(f"{forget}: forgotten; what helpers have charged for it stays charged", err=True)
        elif resume is not None:
            _show(client.resume(resume, confidence), as_json)
        else:
            asked = (value or [], by, filters)
            options = Options(datasets=dataset, noise=noise, epsilon=epsilon, confidence=confidence)
            if explain:
                found = client.explain(*asked, **options)
                typer.echo(found.to_json() if as_json else str(found))
            else:
                _show(client.query(*asked, **options), as_json)


def _show(tables: Sequence[Table], as_json: bool) -> None:
    # First, and apart: where the table cannot be written, its id is not lost, and it was paid for.
    typer.echo(f"request {tables[0].request}", err=True)
    if as_json:
        found = [json.loads(table.to_json()) for table in tables]
        typer.echo(json.dumps({"tables": found}, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(map(str, tables)))


def _list(pending: Sequence[StoredRequest], as_json: bool) -> None:
    """Every pending question with what it asks; its datasets are those of when it was asked."""
    asked = [(kept, messages.decode_request(kept.body)) for kept in pending]
    if as_json:
        found = [
            {"id": kept.id, "asked": dates.iso(kept.asked), **request.model_dump(exclude={"format", "id"})}
            for kept, request in asked
        ]
        typer.echo(json.dumps({"pending": found}, ensure_ascii=False))
        return
    for kept, request in asked:
        what = json.dumps(request.arguments, ensure_ascii=False)
        over = f"{len(request.datasets)} dataset{'s' * (len(request.datasets) > 1)}"
        typer.echo(f"{kept.id}  {dates.shown(kept.asked)} UTC")
        typer.echo(f"  {request.function} {what} over {over}, noise {request.noise:g}")
    if not asked:
        typer.echo("no question is pending", err=True)


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
    short = [text for text in texts if len(text) <= 20 and text.removeprefix("-").isdecimal()]
    numbers = [int(text) for text in short if str(int(text)) == text]
    return [*texts, *numbers]
