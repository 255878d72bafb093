"""What a command prints when it is done: lines or a table for a reader, or one JSON object for a program."""

import json
from collections.abc import Iterable, Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Column, Table


def print_result(fields: Mapping[str, object], as_json: bool, *lines: str) -> None:
    """On standard output, and nothing else there."""
    for line in [json.dumps(fields, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)


class Screen(Console):
    """Where the demo tells its story."""

    def say(self, text: str) -> None:
        """A paragraph, however its lines are broken in the source, and an empty line."""
        self.print(" ".join(text.split()) + "\n")


def table(columns: Iterable[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """Long cells are folded, never cut."""
    folded = [Column(name, overflow="fold") for name in columns]
    made = Table(*folded, title=title, title_justify="left", title_style="bold")
    for row in rows:
        made.add_row(*row)
    return made
