"""A bar of a run's steps on a terminal, with what the run costs. Nothing where nobody looks.

A session is charged whole when it is opened; what it did not use comes back by quarters when it is closed. So
the bar shows two figures of each ε: what would stay charged if the run was closed now, and what is reserved.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon
from maskedlark.training.plan import Plan


class Advancing(Protocol):
    """Told of every step that is done."""

    def advance(self) -> None:
        """One more."""

    def show(self, figures: Mapping[str, float]) -> None:
        """Figures of the caller's, beside the bar until there are others."""


Shown = AbstractContextManager[Advancing]


class Nothing:
    """Where nobody looks."""

    def advance(self) -> None:
        """Nobody looks."""

    def show(self, figures: Mapping[str, float]) -> None:
        """Nor at these."""


@contextmanager
def silent(plan: Plan, first: int) -> Iterator[Advancing]:  # noqa: ARG001
    """Show nothing."""
    yield Nothing()


@contextmanager
def bar(plan: Plan, first: int, console: Console | None = None) -> Iterator[Advancing]:
    """A bar on standard error, if that is a terminal; or on a console that is given."""
    if console is None and not sys.stderr.isatty():
        yield Nothing()
        return
    columns = (
        BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[cost]}"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=console or Console(stderr=True), expand=True) as progress:
        task = progress.add_task("", total=plan.steps, completed=first, figures="", cost=cost(plan, first))
        yield _Bar(progress, task, plan, first)


class _Bar:
    def __init__(self, progress: Progress, task: TaskID, plan: Plan, done: int) -> None:
        self._progress, self._task, self._plan, self._done = progress, task, plan, done

    def advance(self) -> None:
        """One more."""
        self._done += 1
        self._progress.update(self._task, advance=1, cost=cost(self._plan, self._done))

    def show(self, figures: Mapping[str, float]) -> None:
        """To three digits: a bar is narrow."""
        text = " ".join(f"{name} {value:.3g}" for name, value in figures.items())
        self._progress.update(self._task, figures=text)


def cost(plan: Plan, used: int) -> str:
    """Both figures of a run after so many steps: what stays charged if it is closed now, and is reserved.

    It changes with quarters alone, and so is computed four times a run: an ε takes a fraction of a second.
    """
    if plan.course is None:
        return "nothing charged"
    kept = sampling.closed(plan.sampling, plan.course, used)
    alone, together = adserver_epsilon(kept), coalition_epsilon(kept)
    return (
        f"ε {alone:.3g} of {plan.epsilon:.3g} ({together:.3g} of {plan.coalition_epsilon:.3g} with helpers)"
    )
