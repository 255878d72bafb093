"""What a command says when it is done: lines for a reader, or one JSON object for a program."""

import json
from collections.abc import Mapping
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")]


def say(fields: Mapping[str, object], as_json: bool, *lines: str) -> None:
    """On standard output, and nothing else there."""
    if as_json:
        typer.echo(json.dumps(fields, ensure_ascii=False))
        return
    for line in lines:
        typer.echo(line)
