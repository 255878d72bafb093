"""A bar of a run's steps on a terminal, with what the run was charged. Nothing where nobody looks."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from maskedlark.training.plan import Plan


class Advancing(Protocol):
    """Told of every step that is done."""

    def advance(self) -> None:
        """One more."""


Shown = AbstractContextManager[Advancing]


class _Nothing:
    def advance(self) -> None:
        """Nobody looks."""


@contextmanager
def silent(plan: Plan, first: int) -> Iterator[Advancing]:  # noqa: ARG001
    """Show nothing."""
    yield _Nothing()


@contextmanager
def bar(plan: Plan, first: int) -> Iterator[Advancing]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _Nothing()
        return
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(),
        TextColumn(f"ε {plan.epsilon:.3g} ({plan.coalition_epsilon:.3g} with helpers)"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=plan.steps, completed=first)
        yield _Bar(progress, task)


class _Bar:
    def __init__(self, progress: Progress, task: int) -> None:
        self._progress, self._task = progress, task

    def advance(self) -> None:
        """One more."""
        self._progress.advance(self._task)  # type: ignore[arg-type]
