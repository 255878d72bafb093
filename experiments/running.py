"""Running figures one by one: what is missing is said in a line, and the rest runs. Run by users."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from experiments import data, figures, jobs, made, page
from experiments.data.places import NotHere
from experiments.jobs import Advance, Job
from experiments.size import Size

Say = Callable[[str], None]
_EXTRAS = "install maskedlark with its extras `train`, `plots`, `audit` and `bench`"


def main(names: Sequence[str], size: Size, out: Path, say: Say, is_fresh: bool = False) -> int:
    """Run these figures, or `all`, and write their page. 0, if any could be drawn and none failed."""
    wanted = figures.NAMES if "all" in names else tuple(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in figures.NAMES]:
        say(f"there is no figure {unknown[0]}; there are {', '.join(figures.NAMES)}, and all")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    ends = {name: _figure(name, size, out, say, is_fresh) for name in wanted}
    drawn = [name for name, end in ends.items() if end is _End.DRAWN]
    if drawn:
        say(f"{page.write(out, size)}: {', '.join(drawn)}")
    return 0 if drawn and _End.FAILED not in ends.values() else 1


class _End(Enum):
    """What became of a figure."""

    DRAWN = auto()
    LEFT_OUT = auto()
    """Something that it needs is not here."""
    FAILED = auto()


def _figure(name: str, size: Size, out: Path, say: Say, is_fresh: bool) -> _End:
    """Run one. Whatever happens to it, the others run."""
    try:
        return _End.DRAWN if _drawn(name, size, out, say, is_fresh) else _End.LEFT_OUT
    except ModuleNotFoundError as error:
        say(f"{name} is left out: it needs {error.name}; {_EXTRAS}")
        return _End.LEFT_OUT
    except NotHere as error:
        say(f"{name} is left out: {error}")
        return _End.LEFT_OUT
    except Exception as error:  # noqa: BLE001 - an hour of other figures must not be lost with it
        told = " ".join(f"{type(error).__name__}: {error}".split())
        say(f"{name} failed, and what it had found is kept: {told}")
        return _End.FAILED


def _drawn(name: str, size: Size, out: Path, say: Say, is_fresh: bool) -> bool:
    """Whether there is anything to draw."""
    figure = figures.load(name)
    known = figure.jobs(size)
    wanted, missing = _here(name, known, say)
    with _bar(name, wanted) as advance:
        rows = jobs.run(wanted, out / f"{name}.csv", advance, known, is_fresh)
    if not rows:
        return False
    # An earlier run may have had it: then its rows are still there, and are drawn.
    there = {word for row in rows for word in (row.dataset, row.series)}
    made.write(out, name, size, figure.draw(rows, out), [each for each in missing if each not in there])
    return True


def _here(name: str, known: Sequence[Job], say: Say) -> tuple[list[Job], list[str]]:
    """The jobs that can be run here, and the datasets and series that cannot."""
    missing = []
    for dataset in dict.fromkeys(job.dataset for job in known):
        try:
            data.check(dataset)
        except NotHere as error:
            say(f"{name} goes without {dataset}: {error}")
            missing.append(dataset)
    for series, library in dict.fromkeys((job.series, job.library) for job in known if job.library):
        if find_spec(library) is None:
            say(f"{name} goes without {series}: it needs {library}; {_EXTRAS}")
            missing.append(series)
    return [job for job in known if job.dataset not in missing and job.series not in missing], missing


@contextmanager
def _bar(name: str, wanted: Sequence[Job]) -> Iterator[Advance]:
    """A bar on standard error, with the time that is left; nothing where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(f"{name:10}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=sum(job.weight for job in wanted))
        yield lambda weight: progress.advance(task, weight)
