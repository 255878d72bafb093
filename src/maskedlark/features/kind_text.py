"""Kinds of columns as they are typed: `number`, `number:18..90`, `yes/no`, `categories:50`, `hashed:64`."""

from collections.abc import Callable

from maskedlark.errors import NotDeclared
from maskedlark.features.kinds import Boolean, Hashed, Kind, OneHot
from maskedlark.features.scaled import Scaled

FORMS = "number, number:LOW..HIGH, yes/no, categories, categories:MOST, hashed:BUCKETS"


def _number(rest: str) -> Kind:
    if not rest:
        return Scaled()
    low, _, high = rest.partition("..")
    return Scaled(float(low), float(high))


def _boolean(rest: str) -> Kind:
    if rest:
        raise ValueError
    return Boolean()


_READ: dict[str, Callable[[str], Kind]] = {
    "number": _number,
    "yes/no": _boolean,
    "categories": lambda rest: OneHot(int(rest)) if rest else OneHot(),
    "hashed": lambda rest: Hashed(int(rest)),
}


def typed_kind(text: str) -> Kind:
    """The kind that somebody typed."""
    name, _, rest = text.partition(":")
    try:
        return _READ[name](rest)
    except (KeyError, ValueError):
        raise NotDeclared(f"{text!r} is no kind of column: there are {FORMS}") from None
