"""One script a figure. Each has NAME, TITLE, `jobs(size)`, `draw(rows, out)` and `text(rows)`."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from experiments.jobs import Job
from experiments.rows import Row
from experiments.size import Size

NAMES = ("global_dp", "local_dp", "cost", "accounted", "campaigns", "one_release")
"""In the order of the page."""


class Figure(Protocol):
    """What a figure's module has."""

    NAME: str
    TITLE: str

    def jobs(self, size: Size) -> Sequence[Job]:
        """Its points. Needs no data yet."""

    def draw(self, rows: Sequence[Row], out: Path) -> Sequence[str]:
        """Draw what rows there are, into files of this folder; their names."""

    def text(self, rows: Sequence[Row]) -> str:
        """What the page says of it, in Markdown: what was run, settings, what is seen."""


def load(name: str) -> Figure:
    """A figure by its name. Its libraries are imported now."""
    return cast(Figure, import_module(f"{__name__}.{name}"))
