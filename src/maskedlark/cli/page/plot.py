"""A plot as inline SVG: a frame with two axes, and marks.

Marks have CSS classes, which the page's style colours; shapes and dashes distinguish them without colour.
Plots are as wide as a phone, and grow on larger screens.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from maskedlark.cli.page.markup import Markup, element, prose, shown

WIDTH, _RIGHT, _TOP = 360, 24, 26
_RADIUS = 4.5
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)

Place = tuple[float, float]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` evenly spaced round numbers from low to high."""
    assert low < high, "an axis has a width"
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in _ROUND if power * each >= least * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def beyond(high: float, most: int = 6) -> float:
    """A round number at or above this one: the end of an axis from 0."""
    step = ticks(0, high, most)[1]
    return round(math.ceil(high / step - 1e-9) * step, 12)


def tenths(numbers: Sequence[float]) -> tuple[float, float]:
    """The tenths below and above all numbers."""
    low, high = math.floor(min(numbers) * 10 + 1e-9), math.ceil(max(numbers) * 10 - 1e-9)
    return low / 10, max(high, low + 1) / 10


@dataclass(frozen=True)
class Axis:
    """An axis from low to high, with its ticks and label."""

    label: str
    low: float
    high: float
    marks: Sequence[tuple[float, str]]

    @classmethod
    def numbers(cls, label: str, low: float, high: float, most: int = 6) -> "Axis":
        """An axis with round ticks."""
        return cls(label, low, high, [(tick, shown(tick)) for tick in ticks(low, high, most)])

    def place(self, number: float, start: float, end: float) -> float:
        """The coordinate of a number, for an axis drawn from `start` to `end`."""
        return start + (number - self.low) / (self.high - self.low) * (end - start)


@dataclass
class Plot:
    """A plot to which marks are added."""

    name: str
    title: str
    says: str
    """A description for people who cannot see it."""
    x: Axis
    y: Axis
    height: float = 240
    left: float = 44
    below: float = 44
    _marks: list[Markup] = field(default_factory=list)

    def _at(self, point: Place, nudge: float = 0) -> Place:
        """Where a point is drawn, moved down by `nudge`."""
        x = self.x.place(point[0], self.left, WIDTH - _RIGHT)
        return x, self.y.place(point[1], self.height - self.below, _TOP) + nudge

    def line(self, kind: str, points: Iterable[Place]) -> None:
        """A line through all points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(self._at, points))
        self._marks.append(element("path", d=f"M{path}", class_=f"mark line {kind}"))

    def dot(self, kind: str, shape: str, at: Place, says: str, nudge: float = 0) -> None:
        """A mark of this shape, with a tooltip."""
        self._marks.append(dot(kind, shape, *self._at(at, nudge), says))

    def whisker(self, kind: str, low: Place, high: Place, nudge: float = 0) -> None:
        """A vertical or horizontal interval between two points."""
        (x1, y1), (x2, y2) = ends = self._at(low, nudge), self._at(high, nudge)
        a, b = (0, 3.5) if abs(x2 - x1) > abs(y2 - y1) else (3.5, 0)
        caps = "".join(f"M{x - a:.1f} {y - b:.1f}L{x + a:.1f} {y + b:.1f}" for x, y in ends)
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}{caps}"
        self._marks.append(element("path", d=path, class_=f"mark whisker {kind}"))

    def bar(self, kind: str, start: Place, end: Place, thick: float, says: str) -> None:
        """A horizontal bar between two points."""
        x, y = self._at(start, -thick / 2)
        place = {"x": x, "y": y, "width": self._at(end)[0] - x, "height": thick}
        self._marks.append(element("rect", element("title", says), **place, class_=f"mark bar {kind}"))

    def text(self, words: str, at: Place, nudge: float, kind: str = "") -> None:
        """Text that starts at a point, or is centred in a bar."""
        x, y = self._at(at, nudge)
        anchor = "middle" if kind else "start"
        self._marks.append(element("text", words, x=x, y=y, class_=f"words {kind}", text_anchor=anchor))

    def svg(self) -> Markup:
        """The complete plot."""
        return picture(self.name, self.title, self.says, self.height, [*self._frame(), *self._marks])

    def _frame(self) -> Iterator[Markup]:
        """Lines and text of both axes. The left axis has its title above, so that none is rotated."""
        low, right = self.height - self.below, WIDTH - _RIGHT
        for value, words in self.x.marks:
            x, _ = self._at((value, self.y.low))
            yield element("line", x1=x, x2=x, y1=_TOP, y2=low, class_="grid")
            yield element("text", words, x=x, y=low + 17, class_="tick", text_anchor="middle")
        middle = (self.left + right) / 2
        yield element("text", self.x.label, x=middle, y=self.height - 6, class_="label", text_anchor="middle")
        for value, words in self.y.marks:
            _, y = self._at((self.x.low, value))
            yield element("line", x1=self.left, x2=right, y1=y, y2=y, class_="grid")
            yield element("text", words, x=self.left - 9, y=y + 4, class_="tick", text_anchor="end")


def dot(kind: str, shape: str, x: float, y: float, says: str = "") -> Markup:
    """A single mark: circle, square or diamond."""
    words = [element("title", says)] if says else []
    r, side, tip = _RADIUS, _RADIUS * 0.9, _RADIUS * 1.25
    path = {
        "circle": f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        "square": f"M{x - side:.1f} {y - side:.1f}h{2 * side}v{2 * side}h{-2 * side}z",
        "diamond": f"M{x:.1f} {y - tip:.1f}l{tip} {tip}l{-tip} {tip}l{-tip} {-tip}z",
    }
    return element("path", *words, d=path[shape], class_=f"mark dot {kind} {shape}")


def picture(name: str, title: str, says: str, height: float, parts: Iterable[Markup]) -> Markup:
    """An SVG with its title above, and a description for people who cannot see it."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", prose(f"{says} A table follows."), id=f"{name}-desc"),
        element("text", title, x=0, y=12, class_="heading"),
        *parts,
        id=name,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def figure(drawn: Sequence[Markup], *keys: tuple[str, str, str]) -> Markup:
    """One plot or two side by side, with a legend: kind, shape (or `line`), and text."""
    entries = element("ul", *(_key(*entry) for entry in keys), class_="key")
    explained = [element("figcaption", entries)] if keys else []
    kind = "one" if len(drawn) == 1 else "two"
    return element("figure", element("div", *drawn, class_=f"plots {kind}"), *explained)


def _key(kind: str, shape: str, words: str) -> Markup:
    line = [] if shape == "diamond" else [element("path", d="M1 7L25 7", class_=f"line {kind}")]
    mark = [] if shape == "line" else [dot(kind, shape, 13, 7)]
    sample = element("svg", *line, *mark, viewBox="0 0 26 14", width=26, height=14, aria_hidden="true")
    return element("li", sample, words)
