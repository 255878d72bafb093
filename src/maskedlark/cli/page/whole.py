"""The whole page, and writing it."""

from importlib.resources import files
from pathlib import Path

from maskedlark.cli.acts.found import Found
from maskedlark.cli.page import of_model, opening, sections
from maskedlark.cli.page.markup import Markup, element, joined

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is fetched, whatever is in the page."""
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
    "%3Ccircle cx='4' cy='4' r='4' fill='%230072b2'/%3E"
    "%3Cpath d='M0 4h8a4 4 0 0 1-8 0' fill='%23d55e00'/%3E%3C/svg%3E"
)


def write(path: Path, found: Found) -> None:
    """Put the page at the path."""
    path.write_text(page(found), encoding="utf-8")


def page(found: Found) -> str:
    """One HTML document."""
    title = "Masked LARk: what the demo found"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href=_ICON),
        element("title", title),
        element("style", _style()),
    )
    return (
        f"<!doctype html>\n{element('html', head, element('body', _main(found), _foot(found)), lang='en')}\n"
    )


def _main(found: Found) -> Markup:
    intro = (
        f"A parameter service, an ad server and {found.helpers} helpers ran as processes of their own; "
        f"{found.users:,} simulated browsers reported to them over HTTP. All of it was computed in this run, "
        f"in {found.seconds:.0f} s."
    )
    return element(
        "main",
        element(
            "header",
            element("p", "Masked LARk", class_="name"),
            element("h1", "Measured and trained on what people did, with nobody seeing what one of them did"),
            element("p", intro),
        ),
        opening.headline(found),
        opening.way(found),
        sections.measured(found.report),
        of_model.trained(found.model),
        of_model.calibrated(found.model),
        sections.seen(found),
        sections.spent(found),
        sections.attacked(found),
    )


def _foot(found: Found) -> Markup:
    command = f"maskedlark demo --users {found.users} --helpers {found.helpers}"
    words = (
        "Written by ",
        element("code", command),
        f", version {found.version}. This page fetches nothing.",
    )
    return element("footer", element("p", joined(words)))


def _style() -> Markup:
    """Our own file, with no closing tag in it."""
    return Markup(files("maskedlark.cli.page").joinpath("style.css").read_text(encoding="utf-8"))
