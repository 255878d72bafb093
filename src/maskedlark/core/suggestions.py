"""Names that a user may have meant, for errors about unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], there: str = "there are") -> str:
    """The end of an error message: the nearest known name, if one is near, and all known names."""
    names = list(known)
    folded = {each.casefold(): each for each in names}
    near = get_close_matches(name.casefold(), folded, n=1)
    listed = f"{there} {', '.join(names) or 'none'}"
    return f"did you mean {folded[near[0]]!r}? {listed[0].upper()}{listed[1:]}" if near else listed
