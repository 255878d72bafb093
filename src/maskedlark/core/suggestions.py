"""Names that a user may have meant, for errors about unknown names."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_LEAST, _MOST, _OTHER = 0.6, 0.8, 0.9
"""How similar a suggestion is at least: of the shortest names, of long ones, if its first letter differs."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, by all of it or by one of its words; None if none is similar enough.

    In a short name a letter may be wrong; a longer one has more letters in common with any other word. Hardly
    anybody mistypes a first letter: `duration` is not `education`.
    """
    wanted = name.casefold()

    def likeness(other: str) -> float:
        ratio = SequenceMatcher(None, wanted, other).ratio()
        most = _MOST if other[:1] == wanted[:1] else _OTHER
        return ratio if ratio >= max(_LEAST, min(most, 0.99 - 1 / max(1, len(wanted)))) else 0.0

    def by_word(other: str) -> tuple[float, float]:
        whole, *parts = map(likeness, (other.casefold(), *re.split(r"[\W_]+", other.casefold())))
        return max(whole, *parts), whole

    best = max(known, key=by_word, default=None)
    return best if best is not None and by_word(best)[0] > 0 else None


def did_you_mean(name: str, known: Iterable[str], there: str = "there are") -> str:
    """The end of an error message: the nearest known name, if one is near, and all known names."""
    names = list(known)
    near = nearest(name, names)
    listed = f"{there} {', '.join(names) or 'none'}"
    return listed if near is None else f"did you mean {near!r}? {listed[0].upper()}{listed[1:]}"
