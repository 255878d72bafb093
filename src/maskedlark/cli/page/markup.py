"""Elements of HTML and SVG. What is not made here is text, and is escaped: none breaks out of its place."""

import html
from collections.abc import Iterable

_VOID = {"meta", "link", "br"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *inside: str | Markup, **attributes: object) -> Markup:
    """An element. Attributes whose names Python keeps for itself end with _; a _ in one stands for -."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str | Markup]) -> Markup:
    """Parts in a row, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in parts))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(shown)}"'
