"""Tables that a phone shows as cards: there every cell says its column itself."""

from collections.abc import Iterable, Sequence

from maskedlark.cli.page.markup import Markup, element, joined

Cell = str | Markup


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], kind: str = "") -> Markup:
    """A table with its name. Roles are written out: as cards, browsers forget that it is a table."""
    named = (element("th", head, scope="col", role="columnheader") for head in heads)
    head = element("thead", element("tr", *named, role="row"), role="rowgroup")
    body = element("tbody", *(_row(heads, row) for row in rows), role="rowgroup")
    return element("table", element("caption", caption), head, body, role="table", class_=kind or None)


def _row(heads: Sequence[str], cells: Sequence[Cell]) -> Markup:
    first = element("th", cells[0], scope="row", role="rowheader")
    others = (
        element("td", cell, role="cell", data_head=head)
        for head, cell in zip(heads[1:], cells[1:], strict=True)
    )
    return element("tr", first, *others, role="row")


def folded(table: Markup, words: str = "The same as a table") -> Markup:
    """A table that stands beside a plot: closed until somebody wants the numbers."""
    return element("details", element("summary", words), table)


def lines(parts: Iterable[str]) -> Markup:
    """Words below each other in a cell."""
    return joined(element("span", part, class_="line-of-cell") for part in parts)
