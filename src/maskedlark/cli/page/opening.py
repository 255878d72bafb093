"""How the page opens: what came out, in a few numbers; and the way of a report."""

from maskedlark.cli.acts.found import Found
from maskedlark.cli.page.markup import Markup, element
from maskedlark.cli.page.scale import minus
from maskedlark.cli.page.section import firm


def headline(found: Found) -> Markup:
    """What came out, in a few numbers."""
    report, spent = found.report, found.receipts
    tiles = [
        (f"{found.users:,}", f"people saw an ad; {found.bought:,} bought, which their browsers alone know"),
        (f"{found.sent.reports:,}", "sealed reports, fakes among them; the ad server can read none"),
        (f"ε = {spent.epsilon:.3g}", f"of {spent.allowed:g} that a source may cost was spent, on all below"),
    ]
    if found.model is not None:
        private, clear = found.model.private.auc, found.model.clear.auc
        tiles.append(
            (f"{private:.3f}", f"AUC of the private model; {clear:.3f} for one that saw every label")
        )
    ours = found.attacks[0].ours
    if ours is not None:
        says = f"± {ours.error:.3f}: advantage of a helper that attacks labels; 1 would read all"
        tiles.append((minus(f"{ours.advantage:+.3f}"), says))
    says = f"campaign{'s' * (len(report.hidden) != 1)} withheld, of fewer than k = {report.k} records"
    tiles.append((f"{len(report.hidden)}", says))
    drawn = (
        element("li", element("strong", number), element("span", firm(words))) for number, words in tiles
    )
    return element("ul", *drawn, class_="tiles")


def way(found: Found) -> Markup:
    """The way of a report, with what came by."""
    sent, report = found.sent, found.report
    with_model = " and a private model" if found.model is not None else ""
    steps = [
        (
            f"{found.users:,} browsers",
            "split what a person did into shares, one for each helper and random by itself, and seal them; "
            f"{found.fake_rate * 100:g} % more are fakes",
        ),
        ("an ad server", f"stores {sent.reports:,} reports that it cannot read, and asks questions"),
        (
            f"{found.helpers} helpers",
            f"open their own shares of {sent.measured:,} records to add up and {sent.trained:,} to train, "
            f"want at least k = {report.k}, charge ε, and add noise",
        ),
        ("their answers", f"mean something in sum alone: a private report{with_model}"),
    ]
    drawn = (element("li", element("strong", who), element("span", firm(does))) for who, does in steps)
    return element("ol", *drawn, class_="way")
