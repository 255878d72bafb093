"""What a command prints at the end: lines or a table for readers, or one JSON object for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Column, Table


def print_result(fields: Mapping[str, object], as_json: bool, *lines: str) -> None:
    """Print the only output of a command to standard output."""
    for line in [json.dumps(fields, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)


class Screen(Console):
    """The console of the demo."""

    def say(self, text: str) -> None:
        """Print a paragraph, whatever its line breaks in the source, and an empty line."""
        self.print(" ".join(text.split()) + "\n")


def table(columns: Iterable[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """A table whose long cells are wrapped, never truncated."""
    folded = [Column(name, overflow="fold") for name in columns]
    made = Table(*folded, title=title, title_justify="left", title_style="bold")
    for row in rows:
        made.add_row(*row)
    return made
