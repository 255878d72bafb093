"""What a command prints at the end: lines or a table for readers, or one JSON object for programs."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from maskedlark.adserver import stages
from maskedlark.cli.error_handling import OVER_BUDGET

_PATIENCE_S = 2.0


def print_result(fields: Mapping[str, object], as_json: bool, *lines: str) -> None:
    """Print the only output of a command to standard output."""
    for line in [json.dumps(fields, ensure_ascii=False)] if as_json else lines:
        typer.echo(line)


def refuse_over_budget(fits: bool) -> None:
    """Exit as the command would, after a plan that helpers would refuse."""
    if not fits:
        raise typer.Exit(OVER_BUDGET)


@contextmanager
def said_if_slow(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done, and for how long, once it takes longer than two seconds.

    On a terminal a line that changes, and is gone at the end; elsewhere a line for each stage that lasts.
    Call what this gives with every further stage.
    """
    stage, over, began = [what], threading.Event(), time.monotonic()
    console = Console(stderr=True)
    show = _counting if console.is_terminal else _saying
    watching = threading.Thread(target=lambda: over.wait(_PATIENCE_S) or show(console, stage, over, began))
    watching.daemon = True
    watching.start()
    try:
        with stages.shown(stage.append):
            yield stage.append
    finally:
        over.set()
        watching.join()


def _counting(console: Console, stage: list[str], over: threading.Event, began: float) -> None:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, get_time=time.monotonic) as progress:
        task = progress.add_task(stage[-1], total=None)
        progress.tasks[0].start_time = began
        while not over.wait(0.1):
            progress.update(task, description=stage[-1])


def _saying(_: Console, stage: list[str], over: threading.Event, began: float) -> None:
    said = ""
    while True:
        if stage[-1] != said:
            said = stage[-1]
            typer.echo(f"{said} … ({time.monotonic() - began:.0f} s)", err=True)
        if over.wait(_PATIENCE_S):
            return


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
