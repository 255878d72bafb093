"""Names that a user may have meant, for errors about unknown names."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_NEAR = 0.6, 0.8
"""How similar a suggestion is at least: of the shortest names, and of long ones."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, by all of it or by one of its words; None if none is similar enough.

    In a short name a letter may be wrong; a longer one has more letters in common with any other word.
    """
    wanted, (low, high) = name.casefold(), _NEAR
    least = max(low, min(high, 1 - 1 / max(1, len(wanted))))

    def likeness(other: str) -> tuple[float, float]:
        whole, *parts = (
            SequenceMatcher(None, wanted, each).ratio()
            for each in (other.casefold(), *re.split(r"[\W_]+", other.casefold()))
        )
        return max(whole, *parts), whole

    best = max(known, key=likeness, default=None)
    return best if best is not None and likeness(best)[0] >= least else None


def did_you_mean(name: str, known: Iterable[str], there: str = "there are") -> str:
    """The end of an error message: the nearest known name, if one is near, and all known names."""
    names = list(known)
    near = nearest(name, names)
    listed = f"{there} {', '.join(names) or 'none'}"
    return listed if near is None else f"did you mean {near!r}? {listed[0].upper()}{listed[1:]}"
