"""A plot as inline SVG: a frame with two axes, and marks.

The classes of marks name what they stand for, and the page's style gives them colours; shapes and dashes tell
them apart without any. Plots are as wide as a phone, so that one can read them there; on a desk they grow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from maskedlark.cli.page.markup import Markup, element
from maskedlark.cli.page.scale import Scale, shown, ticks

WIDTH = 360
_RADIUS = 4.5

Place = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From low to high, with what it shows written along it."""

    label: str
    low: float
    high: float
    marks: Sequence[tuple[float, str]]

    @classmethod
    def numbers(cls, label: str, low: float, high: float, most: int = 6) -> "Axis":
        """Of round numbers."""
        return cls(label, low, high, [(tick, shown(tick)) for tick in ticks(low, high, most)])


@dataclass
class Plot:
    """A plot in the making."""

    name: str
    title: str
    says: str
    """For who cannot see it."""
    x: Axis
    y: Axis
    height: float = 240
    left: float = 44
    right: float = 24
    top: float = 26
    below: float = 44
    _marks: list[Markup] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.across = Scale(self.x.low, self.x.high, self.left, WIDTH - self.right)
        self.up = Scale(self.y.low, self.y.high, self.height - self.below, self.top)

    def line(self, kind: str, points: Iterable[Place]) -> None:
        """Through all points."""
        path = "L".join(f"{self.across(x):.1f} {self.up(y):.1f}" for x, y in points)
        self._marks.append(element("path", d=f"M{path}", class_=f"mark line {kind}"))

    def dot(self, kind: str, shape: str, at: Place, says: str, nudge: float = 0) -> None:
        """A mark of this shape, with words for who points at it; moved down by so much."""
        x, y = self.across(at[0]), self.up(at[1]) + nudge
        self._marks.append(dot(kind, shape, x, y, says))

    def whisker(self, kind: str, low: Place, high: Place, nudge: float = 0) -> None:
        """An interval from one point to another, straight up or across."""
        x1, y1, x2, y2 = (
            *(self.across(low[0]), self.up(low[1]) + nudge),
            *(self.across(high[0]), self.up(high[1]) + nudge),
        )
        cap = (0, 3.5) if abs(x2 - x1) > abs(y2 - y1) else (3.5, 0)
        ends = "".join(
            f"M{x - cap[0]:.1f} {y - cap[1]:.1f}L{x + cap[0]:.1f} {y + cap[1]:.1f}"
            for x, y in ((x1, y1), (x2, y2))
        )
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}{ends}"
        self._marks.append(element("path", d=path, class_=f"mark whisker {kind}"))

    def bar(self, kind: str, start: Place, end: Place, thick: float, says: str) -> None:
        """A bar across, from one point to another."""
        x, y = self.across(start[0]), self.up(start[1]) - thick / 2
        drawn = element("title", says)
        width = self.across(end[0]) - x
        self._marks.append(
            element("rect", drawn, x=x, y=y, width=width, height=thick, class_=f"mark bar {kind}")
        )

    def text(
        self, words: str, at: Place, kind: str = "", anchor: str = "start", nudge: Place = (0, 0)
    ) -> None:
        """Words in the plot."""
        x, y = self.across(at[0]) + nudge[0], self.up(at[1]) + nudge[1]
        self._marks.append(element("text", words, x=x, y=y, class_=f"words {kind}", text_anchor=anchor))

    def svg(self) -> Markup:
        """The whole."""
        heading = element("text", self.title, x=0, y=12, class_="heading")
        frame = (heading, *self._across(), *self._up())
        return picture(self.name, self.title, self.says, self.height, [*frame, *self._marks])

    def _across(self) -> Iterable[Markup]:
        """Lines and words of the axis at the bottom."""
        low = self.height - self.below
        for value, words in self.x.marks:
            x = self.across(value)
            yield element("line", x1=x, x2=x, y1=self.top, y2=low, class_="grid")
            yield element("text", words, x=x, y=low + 17, class_="tick", text_anchor="middle")
        x = (self.left + WIDTH - self.right) / 2
        yield element("text", self.x.label, x=x, y=self.height - 6, class_="label", text_anchor="middle")

    def _up(self) -> Iterable[Markup]:
        """Lines and words of the axis at the left. Its label stands above it: nobody has to turn the head."""
        for value, words in self.y.marks:
            y = self.up(value)
            yield element("line", x1=self.left, x2=WIDTH - self.right, y1=y, y2=y, class_="grid")
            yield element("text", words, x=self.left - 9, y=y + 4, class_="tick", text_anchor="end")


def dot(kind: str, shape: str, x: float, y: float, says: str = "", size: float = _RADIUS) -> Markup:
    """A mark by itself: circle, square, diamond or cross."""
    words = [element("title", says)] if says else []
    return element("path", *words, d=_shape(shape, x, y, size), class_=f"mark dot {kind} {shape}")


def _shape(shape: str, x: float, y: float, r: float) -> str:
    match shape:
        case "circle":
            return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
        case "square":
            s = r * 0.9
            return f"M{x - s:.1f} {y - s:.1f}h{2 * s}v{2 * s}h{-2 * s}z"
        case "diamond":
            s = r * 1.25
            return f"M{x:.1f} {y - s:.1f}l{s} {s}l{-s} {s}l{-s} {-s}z"
        case _:
            return f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"


def picture(name: str, title: str, says: str, height: float, parts: Iterable[Markup]) -> Markup:
    """An SVG that says what it shows, to who cannot see it too."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", says, id=f"{name}-desc"),
        *parts,
        id=name,
        class_="plot",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def key(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """What marks stand for: kind, shape (or `line`), and words."""
    return element("ul", *(_entry(*entry) for entry in entries), class_="key")


def _entry(kind: str, shape: str, words: str) -> Markup:
    line = element("path", d="M1 7L25 7", class_=f"line {kind}")
    drawn = [line] if shape == "line" else [dot(kind, shape, 13, 7)]
    if shape not in ("line", "diamond") and kind != "bar":
        drawn.insert(0, line)
    sample = element("svg", *drawn, viewBox="0 0 26 14", width=26, height=14, aria_hidden="true")
    return element("li", sample, words)
