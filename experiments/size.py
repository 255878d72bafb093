"""How much of a figure is computed: a look, what the page shows, or the authors' whole grid."""

from enum import StrEnum
from typing import TypeVar

Choice = TypeVar("Choice")


class Size(StrEnum):
    """All figures together, on two cores: under five minutes, three hours, or as long as it takes."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"

    @property
    def seeds(self) -> range:
        """The seeds of a point at which something is drawn."""
        return range(self.pick(1, 3, 3))

    def pick(self, quick: Choice, default: Choice, full: Choice) -> Choice:
        """What a figure wants at this size."""
        return {Size.QUICK: quick, Size.DEFAULT: default, Size.FULL: full}[self]
