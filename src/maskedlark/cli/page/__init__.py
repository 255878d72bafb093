"""The demo's page: one HTML file with inline plots, which fetches nothing. Made by `write`.

markup.py    elements whose text is escaped, tables, lists and sections
plot.py      a frame with axes, and the marks in it
plots.py     the plots of the demo
sections.py  the page's sections, and what is above them
style.css    light and dark colours, and the layout on phones
"""

from importlib.resources import files
from pathlib import Path

from maskedlark.cli.demo_steps.results import DemoResults
from maskedlark.cli.page import sections
from maskedlark.cli.page.markup import Markup, element

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is fetched, whatever the page contains."""
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
    "%3Ccircle cx='4' cy='4' r='4' fill='%230072b2'/%3E"
    "%3Cpath d='M0 4h8a4 4 0 0 1-8 0' fill='%23d55e00'/%3E%3C/svg%3E"
)


def write(path: Path, results: DemoResults) -> None:
    """Write the page to a file."""
    path.write_text(render(results), encoding="utf-8")


def render(results: DemoResults) -> str:
    """The page as one HTML document."""
    # A file of this package, without a closing tag.
    style = Markup(files("maskedlark.cli.page").joinpath("style.css").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href=_ICON),
        element("title", "Masked LARk: what the demo found"),
        element("style", style),
    )
    command = element("code", f"maskedlark demo --users {results.users} --helpers {results.helpers}")
    words = ("Written by ", command, f", version {results.version}. This page fetches nothing.")
    foot = element("footer", element("p", *words))
    body = element("body", element("main", *sections.main(results)), foot)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
