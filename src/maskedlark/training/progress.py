"""A progress bar of a run's steps and cost; only on a terminal.

A session is charged in full when opened; unused quarters are refunded when it is closed. So the bar shows two
figures per ε: what would stay charged if the run were closed now, and what is reserved.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon
from maskedlark.training.plan import TrainingPlan


class Bar:
    """The bar of one run."""

    def __init__(self, progress: Progress, plan: TrainingPlan, done: int) -> None:
        self._progress, self._plan, self._done = progress, plan, done
        self._task = progress.add_task(
            "", total=plan.steps, completed=done, figures="", cost=cost(plan, done)
        )

    def advance(self) -> None:
        """Count one more step."""
        self._done += 1
        self._progress.update(self._task, advance=1, cost=cost(self._plan, self._done))

    def show(self, figures: Mapping[str, float]) -> None:
        """Show the caller's figures, to three digits, until replaced."""
        text = " ".join(f"{name} {value:.3g}" for name, value in figures.items())
        self._progress.update(self._task, figures=text)


@contextmanager
def bar(plan: TrainingPlan, first: int, console: Console | None = None) -> Iterator[Bar | None]:
    """A bar on the given console, or on standard error if that is a terminal; else None."""
    if console is None and not sys.stderr.isatty():
        yield None
        return
    columns = (
        BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[cost]}"), TimeElapsedColumn(), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=console or Console(stderr=True), expand=True) as progress:
        yield Bar(progress, plan, first)


def cost(plan: TrainingPlan, used: int) -> str:
    """Both figures of a run after `used` steps: what stays charged if it is closed now, and what is reserved.

    It changes only each quarter, so it is computed four times per run: an ε takes a fraction of a second.
    """
    if plan.session_charge is None:
        return "nothing charged"
    kept = sampling.closed(plan.sampling, plan.session_charge, used)
    alone, together = adserver_epsilon(kept), coalition_epsilon(kept)
    return (
        f"ε {alone:.3g} of {plan.epsilon:.3g} ({together:.3g} of {plan.coalition_epsilon:.3g} with helpers)"
    )
