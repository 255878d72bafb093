"""The sections about the report, what each party sees, what it cost, and attacks."""

from maskedlark.cli.acts.found import NO_STATE, Found, Number, Report
from maskedlark.cli.page import plots
from maskedlark.cli.page.markup import Markup, element
from maskedlark.cli.page.scale import minus, shown
from maskedlark.cli.page.section import figure, firm, section
from maskedlark.cli.page.tables import Cell, folded, lines, table


def measured(report: Report) -> Markup:
    """The campaign report."""
    intro = (
        "Sums over sealed reports, with the noise of every helper in them. Whiskers are "
        f"{report.confidence * 100:g} % intervals. The truth can be drawn because this demo made the people "
        "up; in life nobody has it."
    )
    drawn = figure(
        [plots.campaigns(report, "buyers", "Buyers"), plots.campaigns(report, "euros", "Euros spent")],
        [
            ("private", "circle", "private estimate, with its interval"),
            ("truth", "diamond", "truth, which nobody has"),
        ],
    )
    heads = ["campaign", "buyers", "true buyers", "euros", "true euros"]
    rows: list[list[Cell]] = [
        [
            each.name,
            _private(each.buyers),
            shown(each.buyers.truth),
            _private(each.euros),
            shown(each.euros.truth),
        ]
        for each in report.campaigns
    ]
    rows += [[name, *["withheld"] * 4] for name in report.hidden]
    shown_table = folded(table("Campaign report", heads, rows))
    return section(
        "report", "The campaign report", intro, drawn, element("p", firm(_why(report))), shown_table
    )


def _why(report: Report) -> str:
    """What is not shown, and what the rest cost."""
    cost = f"The report cost ε = {report.charged:.3g}; {report.left:.3g} was left then for any source in it."
    if not report.hidden:
        return f"No campaign is withheld: all have k = {report.k} records. {cost}"
    return (
        f"Withheld: {', '.join(report.hidden)}, of fewer than k = {report.k} records: a sum over few people "
        f"is close to one of them. {cost}"
    )


def _private(number: Number) -> str:
    return f"{shown(number.estimate)} ({shown(number.low)} to {shown(number.high)})"


def seen(found: Found) -> Markup:
    """What each party has of one person, with its bytes."""
    intro = (
        "Two reports of somebody who bought, one to add up and one to train, with the bytes of this run: a "
        f"bar is a bit, filled for a one. Each share of the {found.helpers} helpers is random by itself, and "
        "only their sum means something. Helpers never send it for one person: they send sums over many, "
        "with noise. The demo opened all of it with everybody's keys, which no one party has."
    )
    drawn = figure(
        [
            plots.bits("plot-euros-bits", "Euros to add up", found.sights, "euros"),
            plots.bits("plot-label-bits", "Label to train", found.sights, "label"),
        ],
        [],
    )
    heads = ["party", "can read", "euros to add up", "label to train"]
    rows = [
        [each.party, lines(each.reads), lines(each.euros.shown), lines(each.label.shown)]
        for each in found.sights
    ]
    seen_table = table("What each party sees of one person who bought", heads, rows, "bytes")
    return section("sights", "What each party sees of one person", intro, drawn, seen_table)


def spent(found: Found) -> Markup:
    """Receipts, and what they add up to."""
    receipts = found.receipts
    intro = (
        "Before a helper answers it signs a receipt, chained to the one before. The chains of all "
        f"{receipts.helpers} helpers verify, from public documents alone: all of this has cost a source at "
        f"most ε = {receipts.epsilon:.3g} of {receipts.allowed:g}, and {receipts.coalition:.3g} if all "
        f"helpers but one joined the ad server; δ = {receipts.delta:g}."
    )
    keys = [("first", "square", "campaign report"), ("allowed", "square", "what a source may still cost")]
    if found.model is not None:
        keys.insert(1, ("second", "square", "training"))
    drawn = figure([plots.budget(receipts)], keys, "one")
    heads = ["receipt", "ε charged", "ε spent", "spent, with helpers"]
    rows = [
        [
            f"{each.number}. {each.what}",
            f"{each.epsilon:.2f}",
            f"{each.spent:.2f}",
            f"{each.spent_coalition:.2f}",
        ]
        for each in receipts.chain
    ]
    chain = table("Receipts of the first helper", heads, rows)
    return section("receipts", "What it cost, by receipts", intro, chain, beside=drawn)


def attacked(found: Found) -> Markup:
    """What helpers win by attacking."""
    intro = (
        "Two attacks on labels, each by one helper with all the masks that it holds. Both win against the "
        "public prototype of the paper. An advantage of 1 reads every label, 0 reads none; ± is the standard "
        "error of a blind guess."
    )
    heads = ["attack", "paper's prototype", "ours"]
    rows = [
        [each.name, *(minus(str(won or NO_STATE)) for won in (each.prototype, each.ours))]
        for each in found.attacks
    ]
    shown_table = table("Advantage over guessing", heads, rows)
    return section("attacks", "Helpers attack", intro, shown_table)
