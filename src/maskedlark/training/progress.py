"""A bar of a run's steps on a terminal, with what the run costs. Nothing where nobody looks.

A session is charged whole when it is opened; what it did not use comes back by quarters when it is closed. So
the bar shows two figures of each ε: what would stay charged if the run was closed now, and what is reserved.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from maskedlark.dp import sampling
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon
from maskedlark.training.plan import TrainingPlan


class Bar:
    """The bar of one run, told of every step that is done."""

    def __init__(self, progress: Progress, plan: TrainingPlan, done: int) -> None:
        self._progress, self._plan, self._done = progress, plan, done
        self._task = progress.add_task(
            "", total=plan.steps, completed=done, figures="", cost=cost(plan, done)
        )

    def advance(self) -> None:
        """One more."""
        self._done += 1
        self._progress.update(self._task, advance=1, cost=cost(self._plan, self._done))

    def show(self, figures: Mapping[str, float]) -> None:
        """Figures of the caller's, until there are others. To three digits: a bar is narrow."""
        text = " ".join(f"{name} {value:.3g}" for name, value in figures.items())
        self._progress.update(self._task, figures=text)


@contextmanager
def bar(plan: TrainingPlan, first: int, console: Console | None = None) -> Iterator[Bar | None]:
    """A bar on standard error, if that is a terminal, or on a console that is given; none elsewhere."""
    if console is None and not sys.stderr.isatty():
        yield None
        return
    columns = (
        BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[cost]}"), TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=console or Console(stderr=True), expand=True) as progress:
        yield Bar(progress, plan, first)


def cost(plan: TrainingPlan, used: int) -> str:
    """Both figures of a run after so many steps: what stays charged if it is closed now, and is reserved.

    It changes with quarters alone, and so is computed four times per run: an ε takes a fraction of a second.
    """
    if plan.course is None:
        return "nothing charged"
    kept = sampling.closed(plan.sampling, plan.course, used)
    alone, together = adserver_epsilon(kept), coalition_epsilon(kept)
    return (
        f"ε {alone:.3g} of {plan.epsilon:.3g} ({together:.3g} of {plan.coalition_epsilon:.3g} with helpers)"
    )
