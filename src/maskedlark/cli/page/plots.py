"""The plots of the demo."""

from collections.abc import Iterator, Sequence
from itertools import chain

from maskedlark.cli.demo_steps.results import ALL, Model, Number, PartyHolding, PartyView, Receipts, Report
from maskedlark.cli.page.markup import Markup, element, shown
from maskedlark.cli.page.plot import WIDTH, Axis, Plot, beyond, picture, tenths

_ROW, _BAR, _LETTER = 44, 22, 6.6
_APART = 7
"""How far the private number is drawn above the true one, so that neither hides the other."""


def campaigns(report: Report, value: str, title: str) -> Markup:
    """A row per campaign: the private number with its interval, the truth below it; or that it is below k."""
    numbers: list[tuple[str, Number]] = [(each.name, getattr(each, value)) for each in report.campaigns]
    names = [name for name, _ in numbers] + list(report.hidden)
    rows = [(len(names) - place - 0.5, name) for place, name in enumerate(names)]
    says = f"{title} by campaign: the private estimate, its interval, and the truth."
    # From 0, or the lowest interval if noise made it negative, to above all numbers.
    least = min((min(number.low, number.truth) for _, number in numbers), default=0)
    most = max((max(number.high, number.truth) for _, number in numbers), default=1)
    x = Axis.numbers("", -beyond(-least, 5) if least < 0 else 0, beyond(max(most, 1), 5), 5)
    y = Axis("", 0, len(names), rows)
    height, left = 56 + _ROW * len(names), 20 + _LETTER * max(map(len, names))
    plot = Plot(f"plot-{value}", title, says, x, y, height, left, below=30)
    for (name, number), (row, _) in zip(numbers, rows, strict=False):
        plot.whisker("private", (number.low, row), (number.high, row), -_APART)
        words = f"{name}: {shown(number.estimate)}, {shown(number.low)} to {shown(number.high)}"
        plot.dot("private", "circle", (number.estimate, row), words, -_APART)
        plot.dot("truth", "diamond", (number.truth, row), f"{name}: {shown(number.truth)} in truth", _APART)
    for row, name in rows[len(numbers) :]:
        words = f"withheld: fewer than {report.k} records"
        plot.bar("withheld", (x.low, row), (x.high, row), _ROW - 14, f"{name}: {words}")
        plot.text(words, ((x.low + x.high) / 2, row), 4, "withheld")
    return plot.svg()


def curve(model: Model, measure: str, title: str) -> Markup:
    """The model's quality during training, against both ε figures of a run up to there."""
    says = f"""{title}, {model.people} of them, after so many steps, against what a run of so many steps
        costs: the ε against the ad server alone, and that against it with all helpers but one."""
    x = Axis.numbers("ε that a run up to here costs", 0, beyond(model.points[-1].coalition, 5), 5)
    levels = {"clear": getattr(model.clear, measure), "guess": getattr(model.guessing, measure)}
    fitted = (model.fit.epsilon, getattr(model.fit.judged, measure))
    heights = [*levels.values(), fitted[1], *(getattr(each, measure) for each in model.points)]
    plot = Plot(f"plot-{measure}", title, says, x, Axis.numbers("", *tenths(heights), 5))
    for kind, height in levels.items():
        plot.line(kind, [(x.low, height), (x.high, height)])
    for kind, shape, figure in (("coalition", "square", "coalition"), ("private", "circle", "epsilon")):
        points = [(getattr(each, figure), getattr(each, measure)) for each in model.points]
        plot.line(kind, points)
        for each, point in zip(model.points, points, strict=True):
            plot.dot(kind, shape, point, f"{each.steps} steps: ε = {point[0]:.2f}, {title} {point[1]:.3f}")
    plot.dot("fitted", "diamond", fitted, f"one release: ε = {fitted[0]:.2f}, {title} {fitted[1]:.3f}")
    return plot.svg()


def calibration(model: Model) -> Markup:
    """What happened against what was predicted: a perfect model is on the diagonal."""
    title = "Share that bought"
    says = """For people grouped by their predicted chance to buy: the share that did, for both private models
        and the cleartext one, with two standard errors. A perfect one lies on the diagonal."""
    marks = [(each / 5, f"{each * 20} %") for each in range(6)]
    x = Axis("predicted chance to buy", 0, 1, marks)
    plot = Plot("plot-calibration", title, says, x, Axis("", 0, 1, marks), height=350, left=52)
    plot.line("guess", [(0, 0), (1, 1)])
    drawn = (("clear", "square", model.clear), ("private", "circle", model.private))
    for kind, shape, judged in (*drawn, ("fitted", "diamond", model.fit.judged)):
        for each in judged.calibration:
            low, high = max(0.0, each.happened - 2 * each.error), min(1.0, each.happened + 2 * each.error)
            plot.whisker(kind, (each.predicted, low), (each.predicted, high))
            words = f"said {each.predicted:.0%}, came true {each.happened:.0%} of {each.people} people"
            plot.dot(kind, shape, (each.predicted, each.happened), words)
    return plot.svg()


def budget(receipts: Receipts) -> Markup:
    """The charges in order, up to a source's budget."""
    title = "ε that one source has cost"
    says = f"""Against the ad server alone {receipts.epsilon:.3g} of {receipts.allowed:g}; against it with all
        helpers but one {receipts.coalition:.3g}."""
    x = Axis.numbers("ε", 0, beyond(max(receipts.allowed, receipts.coalition), 5), 5)
    plot = Plot("plot-budget", title, says, x, Axis("", 0, 2, []), height=170, left=6)
    plot.bar("allowed", (0, 1.4), (receipts.allowed, 1.4), _BAR, f"{receipts.allowed:g} may be spent")
    alone = f"the ad server alone: {receipts.epsilon:.3g} of {receipts.allowed:g}"
    together = f"with all helpers but one: {receipts.coalition:.3g}"
    for row, head, figure in ((1.4, alone, "epsilon"), (0.4, together, "coalition")):
        plot.text(head, (0, row), -17)
        costs = [(each.what, cost) for each in receipts.chain if (cost := getattr(each, figure)) > 0]
        # Only receipts with a cost, end to end: the report, the fit, then training.
        start, kinds = 0.0, iter((("first", "report"), ("second", "fit"), ("third", "training")))
        for what, cost in costs:
            kind, words = next(kinds, ("first", ""))
            plot.bar(kind, (start, row), (start + cost, row), _BAR, f"{what}: ε = {cost:.3g}")
            plot.text(words, (start + cost / 2, row), 4, "inside")
            start += cost
    return plot.svg()


_CELL, _BYTE, _STRIP, _PARTY = 4.6, 6.2, 12, 40
"""A bit's width, the extra gap between bytes, a strip's height, and the distance between strips."""


def bits(name: str, title: str, views: Sequence[PartyView], what: str) -> Markup:
    """Eight bytes of each party, bit by bit: known values have a pattern, masked ones have none."""
    says = f"{title}: what each party holds, as bits. Shares look random, their sum does not."
    strips = (_strip(view, what, place * _PARTY) for place, view in enumerate(views, start=1))
    return picture(name, title, says, 22 + _PARTY * len(views), chain.from_iterable(strips))


def _strip(view: PartyView, what: str, top: float) -> Iterator[Markup]:
    """The holder and the value as text; below, a path of the ones and a path of the zeros."""
    held: PartyHolding = getattr(view, what)
    who = f"{view.party}, {view.reads[0]}" if view.party == ALL else view.party
    party = element("tspan", who, class_="party")
    digits = element("tspan", " ".join(held.shown), class_="hex", dx=7)
    yield element("text", party, digits, x=0, y=top - 5, class_="words")
    number, size = int(held.bytes, 16), f"h{_CELL - 0.9:.1f}v{_STRIP}h{0.9 - _CELL:.1f}z"
    says, kind = element("title", f"{view.party}: {held.bytes}"), "known" if view.knows else "masked"
    for name, bit in (("one", 1), ("zero", 0)):
        places = [place for place in range(64) if number >> (63 - place) & 1 == bit]
        path = "".join(f"M{place * _CELL + place // 8 * _BYTE:.1f} {top:.1f}{size}" for place in places)
        if path:
            yield element("path", says, d=path, class_=f"mark bit {kind} {name}")


assert 63 * _CELL + 7 * _BYTE + _CELL <= WIDTH, "eight bytes fit"
