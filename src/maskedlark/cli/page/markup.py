"""HTML and SVG elements and page parts. Text that was not made here is escaped."""

import html
from collections.abc import Iterable, Sequence

_VOID = {"meta", "link", "br"}


class Markup(str):
    """Text that is already markup."""

    __slots__ = ()


def element(name: str, /, *inside: str | Markup, **attributes: object) -> Markup:
    """An element. Attributes named like Python keywords end with _; other _ become -."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str | Markup]) -> Markup:
    """Concatenate parts, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in parts))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(shown)}"'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> Markup:
    """A table, shown on phones as cards with labelled cells. ARIA roles keep it a table for browsers."""
    named = (element("th", head, scope="col", role="columnheader") for head in heads)
    head = element("thead", element("tr", *named, role="row"), role="rowgroup")
    body = element("tbody", *(_row(heads, row) for row in rows), role="rowgroup")
    return element("table", element("caption", caption), head, body, role="table", class_=kind or None)


def _row(heads: Sequence[str], cells: Sequence[str]) -> Markup:
    first = element("th", cells[0], scope="row", role="rowheader")
    named = zip(heads[1:], cells[1:], strict=True)
    others = (element("td", cell, role="cell", data_head=head) for head, cell in named)
    return element("tr", first, *others, role="row")


def folded(table: Markup, words: str = "The same as a table") -> Markup:
    """A collapsed table with the numbers of a plot."""
    return element("details", element("summary", words), table)


def lines(parts: Iterable[str]) -> Markup:
    """Lines of text in a cell."""
    return joined(element("span", part, class_="line-of-cell") for part in parts)


def listing(kind: str, class_: str, items: Iterable[tuple[str, str]]) -> Markup:
    """A list whose items are a strong phrase and its explanation."""
    drawn = (element("li", element("strong", head), element("span", prose(words))) for head, words in items)
    return element(kind, *drawn, class_=class_)


def section(name: str, title: str, intro: str, *parts: Markup, beside: Markup | None = None) -> Markup:
    """A heading, text and parts, with an optional figure next to them if there is room."""
    heading, inside = element("h2", title, id=f"{name}-heading"), [paragraph(intro), *parts]
    if beside is not None:
        inside = [element("div", element("div", *inside), beside, class_="beside")]
    return element("section", heading, *inside, id=name, aria_labelledby=f"{name}-heading")


def paragraph(text: str) -> Markup:
    """A paragraph of prose."""
    return element("p", prose(text))


def prose(text: str) -> str:
    """Text without line breaks; signs stay on the line of their numbers."""
    flat = " ".join(text.split())
    return flat.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def minus(text: str) -> str:
    """The text with a typographic minus sign."""
    return text.replace("-", "\N{MINUS SIGN}")


def shown(number: float) -> str:
    """A number as shown on an axis."""
    return minus(f"{number:,.10g}")
