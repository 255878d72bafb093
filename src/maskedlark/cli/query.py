"""`maskedlark query`: sums and counts by group, with what they cost; or what they would cost."""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from typer import Option

from maskedlark.adserver import dates
from maskedlark.adserver.client import CONFIDENCE, Client
from maskedlark.adserver.errors import AnsweredBefore
from maskedlark.adserver.query_arguments import Between
from maskedlark.adserver.requests import StoredRequest
from maskedlark.adserver.table import Table
from maskedlark.cli.error_handling import command
from maskedlark.cli.options import AdServerConfig, Json, MostEpsilon, Noise, Several, Text
from maskedlark.cli.output import print_result, refuse_over_budget, said_if_slow
from maskedlark.core.records import Entry
from maskedlark.errors import BadArguments, MaskedLarkError
from maskedlark.release import messages

app = typer.Typer()
_COMMAND = "maskedlark query"


class AskedBefore(MaskedLarkError):
    """The same query was answered before: its answer can be shown again, free of charge."""


@command(
    app,
    "query --config adserver.toml --group-by campaign --value purchase --value count "
    "--where campaign=spring,autumn --where age=18..30 --epsilon 0.5",
)
def query(
    config: AdServerConfig,
    value: Annotated[Several, Option(help="What to add up; `count` counts records. Repeat for more.")] = None,
    group_by: Annotated[Several, Option(help="Keys, with commas between; repeat for another table.")] = None,
    where: Annotated[Several, Option(help="key=a,b or key=18..30: only such records count.")] = None,
    dataset: Annotated[Several, Option(help="Over this one; repeat for more. Else all frozen.")] = None,
    epsilon: MostEpsilon = None,
    noise: Noise = None,
    confidence: Annotated[float, Option(min=0, max=1, help="Of the intervals.")] = CONFIDENCE,
    explain: Annotated[
        bool, Option("--explain", "--plan", help="Say what it would cost; spend nothing.")
    ] = False,
    again: Annotated[
        bool, Option("--again", help="Ask for another answer to a query that was answered before.")
    ] = False,
    pending: Annotated[
        bool, Option("--pending", help="List queries that were begun and not answered.")
    ] = False,
    resume: Annotated[Text, Option(help="Finish this request, or show its answer again.")] = None,
    forget: Annotated[Text, Option(help="Let go of this request; what was charged stays charged.")] = None,
    as_json: Json = False,
) -> None:
    """Ask the helpers for sums by group. Shows errors, intervals, the cost, and what is left."""
    if sum([bool(value), pending, resume is not None, forget is not None]) != 1:
        raise typer.BadParameter("give one of --value, --pending, --resume and --forget")
    by: list[tuple[str, ...]] = [tuple(keys.split(",")) for keys in group_by] if group_by else [()]
    filters = parse_where(where or [])
    with _naming(config), Client.from_config(config) as client:
        if pending:
            _list(client.pending(), as_json)
        elif forget is not None:
            client.forget(forget)
            print_result({"forgotten": forget}, as_json)
            typer.echo(f"{forget}: forgotten; what helpers have charged for it stays charged", err=True)
        elif resume is not None:
            with said_if_slow("asking the helpers"):
                tables = client.resume(resume, confidence)
            _show(tables, as_json, config)
        else:
            asked = (value or [], by, filters)
            options: dict[str, Any] = {
                "datasets": dataset,
                "noise": noise,
                "epsilon": epsilon,
                "confidence": confidence,
            }
            before = None if again else client.asked_before(*asked, **options)
            if explain:
                explained = client.explain(*asked, **options)
                typer.echo(explained.to_json() if as_json else str(explained))
                if before is not None:
                    typer.echo(_named(_before(before), config), err=True)
                refuse_over_budget(explained.fits or before is not None)
            elif before is not None:
                raise AskedBefore(_before(before))
            else:
                with said_if_slow("asking the helpers"), warnings.catch_warnings():
                    warnings.simplefilter("ignore", AnsweredBefore)  # With --again it is meant.
                    tables = client.query(*asked, **options)
                _show(tables, as_json, config)


@contextmanager
def _naming(config: Path) -> Iterator[None]:
    """Errors with commands that can be typed as they are printed."""
    try:
        yield
    except MaskedLarkError as error:
        error.args = (_named(str(error), config),)
        raise


def _named(text: str, config: Path) -> str:
    """The package does not know which file a command is given."""
    return text.replace(_COMMAND, f"{_COMMAND} --config {quote(str(config))}")


def _before(request: StoredRequest) -> str:
    return (
        f"the same was asked and answered {dates.format_utc(request.asked)} UTC: `{_COMMAND} --resume "
        f"{request.id}` shows that answer again and costs nothing; with --again another is asked for, and "
        "charged"
    )


def _show(tables: Sequence[Table], as_json: bool, config: Path) -> None:
    # First, and separately: the id of a paid query must not be lost if the table cannot be written.
    typer.echo(f"request {tables[0].request}", err=True)
    fields = {"tables": [json.loads(table.to_json()) for table in tables]}
    print_result(fields, as_json, _named("\n\n".join(map(str, tables)), config))


def _list(pending: Sequence[StoredRequest], as_json: bool) -> None:
    """Every pending query, with the datasets of when it was made."""
    asked = [(kept, messages.Request.decode(kept.body)) for kept in pending]
    fields, lines = [], []
    for kept, request in asked:
        rest = request.model_dump(exclude={"format", "id"})
        fields.append({"id": kept.id, "asked": dates.iso(kept.asked), **rest})
        what = json.dumps(request.arguments, ensure_ascii=False)
        over = f"{len(request.datasets)} dataset{'s' * (len(request.datasets) > 1)}"
        lines.append(f"{kept.id}  {dates.format_utc(kept.asked)} UTC")
        lines.append(f"  {request.function} {what} over {over}, noise {request.noise:g}")
    print_result({"pending": fields}, as_json, *lines)
    if not (asked or as_json):
        typer.echo("no query is pending", err=True)


def parse_where(texts: list[str]) -> dict[str, list[Entry] | Between]:
    """Parse the filters of the command line."""
    filters: dict[str, list[Entry] | Between] = {}
    for text in texts:
        key, is_there, wanted = text.partition("=")
        if not is_there or not key or not wanted:
            raise BadArguments(f"{text!r} is no filter: write key=a,b or key=18..30")
        if key in filters:
            raise BadArguments(f"two filters on {key}: write key=a,b to allow several entries")
        filters[key] = _between(text, wanted) if ".." in wanted else _among(wanted)
    return filters


def _between(text: str, wanted: str) -> Between:
    least, _, most = wanted.partition("..")
    try:
        return Between(int(least) if least else None, int(most) if most else None)
    except ValueError:
        raise BadArguments(f"{text!r} has no whole numbers around its two dots: write key=18..30") from None


def _among(wanted: str) -> list[Entry]:
    """Every entry as text, and also as a number if possible: the command line cannot tell which is meant."""
    texts = wanted.split(",")
    short = [text for text in texts if len(text) <= 20 and text.removeprefix("-").isdecimal()]
    numbers = [int(text) for text in short if str(int(text)) == text]
    return [*texts, *numbers]
