"""Running figures one by one: what is missing is said in a line, and the rest runs. Run by users."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from experiments import data, figures, jobs, made, page
from experiments.data.places import NotHere
from experiments.jobs import Advance, Job
from experiments.size import Size

Say = Callable[[str], None]
_EXTRAS = "install maskedlark with its extras `train`, `plots`, `audit` and `bench`"


def main(names: Sequence[str], size: Size, out: Path, say: Say) -> int:
    """Run these figures, or `all`, and write their page. 0, if any could be drawn."""
    wanted = figures.NAMES if "all" in names else tuple(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in figures.NAMES]:
        say(f"there is no figure {unknown[0]}; there are {', '.join(figures.NAMES)}, and all")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    drawn = [name for name in wanted if _figure(name, size, out, say)]
    if drawn:
        say(f"{page.write(out, size)}: {', '.join(drawn)}")
    return 0 if drawn else 1


def _figure(name: str, size: Size, out: Path, say: Say) -> bool:
    """Whether it could be drawn."""
    try:
        figure = figures.load(name)
        wanted, missing = _here(name, figure.jobs(size), say)
        with _bar(name, wanted) as advance:
            rows = jobs.run(wanted, out / f"{name}.csv", advance)
        if not rows:
            return False
        plots = figure.draw(rows, out)
    except ModuleNotFoundError as error:
        say(f"{name} is left out: it needs {error.name}; {_EXTRAS}")
        return False
    except NotHere as error:
        say(f"{name} is left out: {error}")
        return False
    made.write(out, name, size, plots, missing)
    return True


def _here(name: str, wanted: Sequence[Job], say: Say) -> tuple[list[Job], list[str]]:
    """The jobs whose data is here, and the datasets that are not."""
    missing = []
    for dataset in dict.fromkeys(job.dataset for job in wanted):
        try:
            data.check(dataset)
        except NotHere as error:
            say(f"{name} goes without {dataset}: {error}")
            missing.append(dataset)
    return [job for job in wanted if job.dataset not in missing], missing


@contextmanager
def _bar(name: str, wanted: Sequence[Job]) -> Iterator[Advance]:
    """A bar on standard error, with the time that is left; nothing where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(f"{name:10}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=sum(job.weight for job in wanted))
        yield lambda weight: progress.advance(task, weight)
