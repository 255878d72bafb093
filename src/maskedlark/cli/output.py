"""What a command prints at the end: lines or a table for readers, or one JSON object for programs."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Column, Table

_PATIENCE_S = 2.0


def print_result(fields: Mapping[str, object], as_json: bool, *lines: str) -> None:
    """Print the only output of a command to standard output."""
    for line in [json.dumps(fields, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)


@contextmanager
def said_if_slow(what: str) -> Iterator[None]:
    """Say on standard error what is being done, once it takes longer than two seconds."""
    timer = threading.Timer(_PATIENCE_S, typer.echo, [f"{what} …"], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
