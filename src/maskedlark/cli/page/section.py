"""What all sections of the page are made of: a heading, words, figures, and what follows."""

from maskedlark.cli.page.markup import Markup, element
from maskedlark.cli.page.plot import key


def figure(drawn: list[Markup], keys: list[tuple[str, str, str]], kind: str = "two") -> Markup:
    """Plots beside each other, and what their marks stand for."""
    explained = [element("figcaption", key(keys))] if keys else []
    return element("figure", element("div", *drawn, class_=f"plots {kind}"), *explained)


def section(name: str, title: str, intro: str, *parts: Markup, beside: Markup | None = None) -> Markup:
    """A heading, words, and what follows; a lone figure stands beside all that, where there is room."""
    heading, inside = element("h2", title, id=f"{name}-heading"), [element("p", firm(intro)), *parts]
    if beside is not None:
        inside = [element("div", element("div", *inside), beside, class_="beside")]
    return element("section", heading, *inside, id=name, aria_labelledby=f"{name}-heading")


def firm(text: str) -> str:
    """With signs that stay on the line of their numbers."""
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")
