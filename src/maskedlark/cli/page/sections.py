"""The page from top to bottom: what came out, the way of a report, and a section for each of the steps."""

from collections.abc import Iterator

from maskedlark.cli.demo_steps.results import NO_STATE, DemoResults, Model, Number, Report
from maskedlark.cli.page import plots
from maskedlark.cli.page.markup import (
    Markup,
    element,
    firm,
    folded,
    lines,
    listing,
    minus,
    section,
    shown,
    table,
)
from maskedlark.cli.page.plot import figure

NO_MODEL = "No model was trained in this run: pip install 'maskedlark[train]' brings what that needs."


def main(results: DemoResults) -> Iterator[Markup]:
    """All that stands between the page's head and its foot."""
    intro = (
        f"A parameter service, an ad server and {results.helpers} helpers ran as processes of their own; "
        f"{results.users:,} simulated browsers reported to them over HTTP. All of it was computed in this "
        f"run, in {results.seconds:.0f} s."
    )
    yield element(
        "header",
        element("p", "Masked LARk", class_="name"),
        element("h1", "Measured and trained on what people did, with nobody seeing what one of them did"),
        element("p", intro),
    )
    yield _headline(results)
    yield _way(results)
    yield _measured(results.report)
    yield from _model(results.model)
    yield _seen(results)
    yield _spent(results)
    yield _attacked(results)


def _headline(results: DemoResults) -> Markup:
    """What came out, in a few numbers."""
    report, spent, bought = results.report, results.receipts, results.bought
    tiles = [
        (f"{results.users:,}", f"people saw an ad; {bought:,} bought, which their browsers alone know"),
        (f"{results.sent.reports:,}", "sealed reports, fakes among them; the ad server can read none"),
        (f"ε = {spent.epsilon:.3g}", f"of {spent.allowed:g} that a source may cost was spent, on all below"),
    ]
    if results.model is not None:
        private, clear = results.model.private.auc, results.model.clear.auc
        words = f"AUC of the private model; {clear:.3f} for one that saw every label"
        tiles.append((f"{private:.3f}", words))
    ours = results.attacks[0].ours
    if ours is not None:
        words = f"± {ours.error:.3f}: advantage of a helper that attacks labels; 1 would read all"
        tiles.append((minus(f"{ours.advantage:+.3f}"), words))
    words = f"campaign{'s' * (len(report.hidden) != 1)} withheld, of fewer than k = {report.k} records"
    return listing("ul", "tiles", [*tiles, (f"{len(report.hidden)}", words)])


def _way(results: DemoResults) -> Markup:
    """The way of a report, with what came by."""
    sent, with_model = results.sent, " and a private model" if results.model is not None else ""
    steps = [
        (
            f"{results.users:,} browsers",
            "split what a person did into shares, one for each helper and random by itself, and seal them; "
            f"{results.fake_rate * 100:g} % more are fakes",
        ),
        ("an ad server", f"stores {sent.reports:,} reports that it cannot read, and asks questions"),
        (
            f"{results.helpers} helpers",
            f"open their own shares of {sent.measured:,} records to add up and {sent.trained:,} to train, "
            f"want at least k = {results.report.k}, charge ε, and add noise",
        ),
        ("their answers", f"mean something in sum alone: a private report{with_model}"),
    ]
    return listing("ol", "way", steps)


def _measured(report: Report) -> Markup:
    """The campaign report; what is not shown of it, and what the rest cost."""
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
    rows = [[each.name, *_cells(each.buyers), *_cells(each.euros)] for each in report.campaigns]
    rows += [[name, *["withheld"] * 4] for name in report.hidden]
    note = f"No campaign is withheld: all have k = {report.k} records."
    if report.hidden:
        note = (
            f"Withheld: {', '.join(report.hidden)}, of fewer than k = {report.k} records: a sum over few "
            "people is close to one of them."
        )
    note += (
        f" The report cost ε = {report.charged:.3g}; {report.left:.3g} was left then for any source in it."
    )
    parts = (drawn, element("p", firm(note)), folded(table("Campaign report", heads, rows)))
    return section("report", "The campaign report", intro, *parts)


def _cells(number: Number) -> tuple[str, str]:
    private = f"{shown(number.estimate)} ({shown(number.low)} to {shown(number.high)})"
    return private, shown(number.truth)


def _model(model: Model | None) -> Iterator[Markup]:
    """The sections about the model; or that there is none."""
    titles = "A model trained on labels that nobody holds", "How good is it?"
    if model is None:
        yield section("model", titles[0], NO_MODEL)
        yield section("calibration", titles[1], NO_MODEL)
    else:
        yield _trained(model, titles[0])
        yield _calibrated(model, titles[1])


def _trained(model: Model, title: str) -> Markup:
    """The model: its way, and what it is worth."""
    intro = (
        f"A logistic regression of {', '.join(model.features)}: {model.steps} steps through the helpers, "
        f"each on about {model.batch:,.0f} records that they drew, in {model.seconds:.0f} s. It cost "
        f"ε = {model.epsilon:.3g} against the ad server alone, {model.coalition:.3g} against it with all "
        f"helpers but one, δ = {model.delta:g}."
    )
    drawn = figure(
        [
            plots.curve(model, "auc", "AUC on other people"),
            plots.curve(model, "loss", "Log-loss on other people"),
        ],
        [
            ("private", "circle", "ε against the ad server alone"),
            ("coalition", "square", "ε against it with all helpers but one"),
            ("clear", "line", "trained in the clear, which hides nothing"),
            ("guess", "line", "not trained: guessing"),
        ],
    )
    note = (
        "A session is charged whole when it is opened: a point shows what a run that ends there would have "
        "cost with the same noise. Who trains so has no labels to draw this by: the people who judge here "
        "are the demo's own."
    )
    heads = ["steps", "ε, ad server alone", "ε, with all helpers but one", "AUC", "log-loss"]
    rows = [
        [f"{p.steps}", f"{p.epsilon:.2f}", f"{p.coalition:.2f}", f"{p.auc:.3f}", f"{p.loss:.3f}"]
        for p in model.points
    ]
    course = folded(table("The training's course", heads, rows))
    return section("model", title, intro, drawn, element("p", note), course)


def _calibrated(model: Model, title: str) -> Markup:
    """How good it is, and whether what it says comes true."""
    intro = (
        f"Models are judged on {model.people:,} other people. The plot groups them by how likely a model "
        "thinks that they buy, and shows how many did: on the diagonal it is right. Whiskers are two "
        "standard errors of that share."
    )
    keys = [
        ("private", "circle", "trained through the helpers"),
        ("clear", "square", "trained in the clear"),
        ("guess", "line", "perfect"),
    ]
    drawn = figure([plots.calibration(model)], keys, "one")
    models = [
        [each.name, each.who, f"{each.auc:.3f}", f"{each.loss:.3f}"]
        for each in (model.private, model.clear, model.guessing)
    ]
    rows = [
        [name, _percent(b.predicted), f"{_percent(b.happened)} ± {_percent(2 * b.error)}", f"{b.people:,}"]
        for name, judged in (("private", model.private), ("in the clear", model.clear))
        for b in judged.calibration
    ]
    compared = table("Who will buy?", ["model", "who saw its labels", "AUC", "log-loss"], models)
    calibration = table("Calibration", ["model", "predicted", "came true", "people"], rows)
    parts = (compared, folded(calibration, "The plot as a table"))
    return section("calibration", title, intro, *parts, beside=drawn)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seen(results: DemoResults) -> Markup:
    """What each party has of one person, with its bytes."""
    intro = (
        "Two reports of somebody who bought, one to add up and one to train, with the bytes of this run: a "
        f"bar is a bit, filled for a one. Each share of the {results.helpers} helpers is random by itself, "
        "and only their sum means something. Helpers never send it for one person: they send sums over many, "
        "with noise. The demo opened all of it with everybody's keys, which no one party has."
    )
    titles = {"euros": "Euros to add up", "label": "Label to train"}
    drawn = [plots.bits(f"plot-{what}-bits", title, results.sights, what) for what, title in titles.items()]
    heads = ["party", "can read", "euros to add up", "label to train"]
    rows = [
        [each.party, lines(each.reads), lines(each.euros.shown), lines(each.label.shown)]
        for each in results.sights
    ]
    seen = table("What each party sees of one person who bought", heads, rows, "bytes")
    return section("sights", "What each party sees of one person", intro, figure(drawn, []), seen)


def _spent(results: DemoResults) -> Markup:
    """Receipts, and what they add up to."""
    receipts = results.receipts
    intro = (
        "Before a helper answers it signs a receipt, chained to the one before. The chains of all "
        f"{receipts.helpers} helpers verify, from public documents alone: all of this has cost a source at "
        f"most ε = {receipts.epsilon:.3g} of {receipts.allowed:g}, and {receipts.coalition:.3g} if all "
        f"helpers but one joined the ad server; δ = {receipts.delta:g}."
    )
    keys = [("first", "square", "campaign report"), ("allowed", "square", "what a source may still cost")]
    if results.model is not None:
        keys.insert(1, ("second", "square", "training"))
    heads = ["receipt", "ε charged", "ε spent", "spent, with helpers"]
    rows = [
        [
            f"{each.number}. {each.what}",
            *map("{:.2f}".format, (each.epsilon, each.spent, each.spent_coalition)),
        ]
        for each in receipts.chain
    ]
    chain = table("Receipts of the first helper", heads, rows)
    drawn = figure([plots.budget(receipts)], keys, "one")
    return section("receipts", "What it cost, by receipts", intro, chain, beside=drawn)


def _attacked(results: DemoResults) -> Markup:
    """What helpers win by attacking."""
    intro = (
        "Two attacks on labels, each by one helper with all the masks that it holds. Both win against the "
        "public prototype of the paper. An advantage of 1 reads every label, 0 reads none; ± is the standard "
        "error of a blind guess."
    )
    rows = [
        [each.name, *(minus(str(won or NO_STATE)) for won in (each.prototype, each.ours))]
        for each in results.attacks
    ]
    won = table("Advantage over guessing", ["attack", "paper's prototype", "ours"], rows)
    return section("attacks", "Helpers attack", intro, won)
