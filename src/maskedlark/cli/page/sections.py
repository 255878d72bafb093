"""The page's contents: results, the path of a report, and a section per step."""

from collections.abc import Iterator, Sequence

from maskedlark.cli.demo_steps.results import NO_STATE, Attack, DemoResults, Model, Number, Receipts, Report
from maskedlark.cli.page import markup, plots
from maskedlark.cli.page.markup import Markup, element, folded, minus, paragraph, section, shown, table
from maskedlark.cli.page.plot import figure

NO_MODEL = "No model was trained in this run: pip install 'maskedlark[train]' brings what that needs."


def main(results: DemoResults) -> Iterator[Markup]:
    """Everything between the page's head and its foot."""
    intro = f"""A parameter service, an ad server and {results.helpers} helpers ran as processes of their own;
        {results.users:,} simulated browsers reported to them over HTTP. All of it was computed in this run,
        in {results.seconds:.0f} s."""
    title = "Measured and trained on what people did, with nobody seeing what one of them did"
    name = element("p", "Masked LARk", class_="name")
    yield element("header", name, element("h1", title), paragraph(intro))
    yield markup.listing("ul", "tiles", _tiles(results))
    yield markup.listing("ol", "way", _way(results))
    yield _measured(results.report)
    yield _trained("model", "A model trained on labels that nobody holds", results.model)
    yield _calibrated("calibration", "How good is it?", results.model)
    yield _seen(results)
    yield _spent(results.receipts, results.model)
    yield _attacked(results.attacks)


def _tiles(results: DemoResults) -> Iterator[tuple[str, str]]:
    """The results in a few numbers."""
    model, spent, ours, report = results.model, results.receipts, results.attacks[0].ours, results.report
    bought = f"{results.bought:,} bought, which their browsers alone know"
    yield f"{results.users:,}", f"people saw an ad; {bought}"
    yield f"{results.sent.reports:,}", "sealed reports, fakes among them; the ad server can read none"
    together = f"{spent.coalition:.3g} against it with all helpers but one"
    words = f"of {spent.allowed:g} that a source may cost was spent against the ad server alone, {together}"
    yield f"ε = {spent.epsilon:.3g}", words
    if model is not None:
        words = f"AUC of a model from one release, at ε = {model.fit.epsilon:.3g} against everybody; " + (
            f"{model.private.auc:.3f} by gradients, {model.clear.auc:.3f} for one that saw every label"
        )
        yield f"{model.fit.judged.auc:.3f}", words
    if ours is not None:
        words = f"± {ours.error:.3f}: advantage of a helper that attacks labels; 1 would read all"
        yield minus(ours.signed), words
    campaigns = f"campaign{'s' * (len(report.hidden) != 1)}"
    yield f"{len(report.hidden)}", f"{campaigns} withheld, of fewer than k = {report.k} records"


def _way(results: DemoResults) -> Iterator[tuple[str, str]]:
    """The path of a report, with counts."""
    sent, with_model = results.sent, " and private models" if results.model is not None else ""
    words = f"""split what a person did into shares, one for each helper and random by itself, and seal them;
        {results.fake_rate * 100:g} % more are fakes"""
    yield f"{results.users:,} browsers", words
    yield "an ad server", f"stores {sent.reports:,} reports that it cannot read, and sends queries"
    words = f"""open their own shares of {sent.measured:,} records to add up and {sent.trained:,} to train,
        want at least k = {results.report.k}, charge ε, and add noise"""
    yield f"{results.helpers} helpers", words
    yield "their answers", f"mean something in sum alone: a private report{with_model}"


def _measured(report: Report) -> Markup:
    """The campaign report, what it hides, and what it cost."""
    intro = f"""Sums over sealed reports, with the noise of every helper in them. Whiskers are
        {report.confidence * 100:g} % intervals. The truth can be drawn because this demo made the people up;
        in life nobody has it."""
    drawn = figure(
        [plots.campaigns(report, "buyers", "Buyers"), plots.campaigns(report, "euros", "Euros spent")],
        ("private", "circle", "private estimate, with its interval"),
        ("truth", "diamond", "truth, which nobody has"),
    )
    heads = ["campaign", "buyers", "true buyers", "euros", "true euros"]
    rows = [[each.name, *_cells(each.buyers), *_cells(each.euros)] for each in report.campaigns]
    rows += [[name, *["withheld"] * 4] for name in report.hidden]
    withheld = f"No campaign is withheld: all have k = {report.k} records."
    if report.hidden:
        withheld = f"""Withheld: {", ".join(report.hidden)}, of fewer than k = {report.k} records: a sum over
            few people is close to one of them."""
    cost = f"""The report cost ε = {report.charged:.3g} against everybody; {report.left:.3g} was left then of
        the budget of any source in it."""
    parts = (drawn, paragraph(f"{withheld} {cost}"), folded(table("Campaign report", heads, rows)))
    return section("report", "The campaign report", intro, *parts)


def _cells(number: Number) -> tuple[str, str]:
    private = f"{shown(number.estimate)} ({shown(number.low)} to {shown(number.high)})"
    return private, shown(number.truth)


def _trained(name: str, title: str, model: Model | None) -> Markup:
    """The model's training and its quality."""
    if model is None:
        return section(name, title, NO_MODEL)
    intro = f"""A logistic regression of {", ".join(model.features)}, fitted from one release in
        {model.fit.seconds:.0f} s: ε = {model.fit.epsilon:.3g} against everybody. By private gradients it took
        {model.steps} steps, each on about {model.batch:,.0f} records that the helpers drew, and
        {model.seconds:.0f} s: ε = {model.epsilon:.3g} against the ad server alone, {model.coalition:.3g}
        against it with all helpers but one, δ = {model.delta:g}."""
    measures = {"auc": "AUC on other people", "loss": "Log-loss on other people"}
    drawn = figure(
        [plots.curve(model, measure, of) for measure, of in measures.items()],
        ("private", "circle", "ε against the ad server alone"),
        ("coalition", "square", "ε against it with all helpers but one"),
        ("fitted", "diamond", "from one release: one ε against everybody"),
        ("clear", "line", "trained in the clear, which hides nothing"),
        ("guess", "line", "not trained: guessing"),
    )
    note = """A session is charged whole when it is opened: a point shows what a run that ends there would
        have cost with the same noise. A caller who trains this way has no labels to draw this by: the people
        who judge here are the demo's own. Log-loss rises between the first steps, as it does without noise:
        momentum carries the model past its best, and back. AUC depends on the order of people alone, and
        hardly notices."""
    heads = ["steps", "ε, ad server alone", "ε, with all helpers but one", "AUC", "log-loss"]
    cells = "{steps} {epsilon:.2f} {coalition:.2f} {auc:.3f} {loss:.3f}"
    rows = [cells.format(**vars(point)).split() for point in model.points]
    steps = folded(table("The training, step by step", heads, rows))
    return section(name, title, intro, drawn, paragraph(note), steps)


def _calibrated(name: str, title: str, model: Model | None) -> Markup:
    """The model's quality and calibration."""
    if model is None:
        return section(name, title, NO_MODEL)
    intro = f"""Models are judged on {model.people:,} other people. The plot groups them by how likely a model
        thinks that they buy, and shows how many did: on the diagonal it is right. Whiskers are two standard
        errors of that share."""
    drawn = figure(
        [plots.calibration(model)],
        ("fitted", "diamond", "fitted from one release"),
        ("private", "circle", "trained through the helpers"),
        ("clear", "square", "trained in the clear"),
        ("guess", "line", "perfect"),
    )
    fitted = model.fit.judged
    judged = (fitted, model.private, model.clear, model.guessing)
    models = [[each.name, each.who, f"{each.auc:.3f}", f"{each.loss:.3f}"] for each in judged]
    rows = [
        [of, _percent(b.predicted), f"{_percent(b.happened)} ± {_percent(2 * b.error)}", f"{b.people:,}"]
        for of, one in (("fitted", fitted), ("trained", model.private), ("in the clear", model.clear))
        for b in one.calibration
    ]
    compared = table("Who will buy?", ["model", "who saw its labels", "AUC", "log-loss"], models)
    calibration = table("Calibration", ["model", "predicted", "came true", "people"], rows)
    return section(name, title, intro, compared, folded(calibration, "The plot as a table"), beside=drawn)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seen(results: DemoResults) -> Markup:
    """What each party holds of one person, with its bytes."""
    intro = f"""Two reports of somebody who bought, one to add up and one to train, with the bytes of this
        run: a bar is a bit, filled for a one. Each share of the {results.helpers} helpers is random by
        itself, and only their sum means something. Helpers never send it for one person: they send sums over
        many, with noise. The demo opened all of it with everybody's keys, which no one party has."""
    titles = {"euros": "Euros to add up", "label": "Label to train"}
    drawn = [
        plots.bits(f"plot-{what}-bits", title, results.party_views, what) for what, title in titles.items()
    ]
    heads = ["party", "can read", "euros to add up", "label to train"]
    rows = [
        [v.party, *map(markup.lines, (v.reads, v.euros.shown, v.label.shown))] for v in results.party_views
    ]
    seen = table("What each party sees of one person who bought", heads, rows, "bytes")
    return section("party-views", "What each party sees of one person", intro, figure(drawn), seen)


def _spent(receipts: Receipts, model: Model | None) -> Markup:
    """Receipts and their sum."""
    intro = f"""Before a helper answers it signs a receipt, chained to the one before. The chains of all
        {receipts.helpers} helpers verify, from public documents alone: all of this has cost a source at most
        ε = {receipts.epsilon:.3g} of {receipts.allowed:g}, and {receipts.coalition:.3g} if all helpers but
        one joined the ad server; δ = {receipts.delta:g}."""
    drawn = figure(
        [plots.budget(receipts)],
        ("first", "square", "campaign report"),
        *([] if model is None else [("second", "square", "fit"), ("third", "square", "training")]),
        ("allowed", "square", "what a source may still cost"),
    )
    heads = ["receipt", "ε charged", "ε spent", "spent, with helpers"]
    costs = "{epsilon:.2f} {spent:.2f} {spent_coalition:.2f}"
    rows = [[f"{each.number}. {each.what}", *costs.format(**vars(each)).split()] for each in receipts.chain]
    chain = table("Receipts of the first helper", heads, rows)
    return section("receipts", "What it cost, by receipts", intro, chain, beside=drawn)


def _attacked(attacks: Sequence[Attack]) -> Markup:
    """What helpers gain by attacking."""
    intro = """Two attacks on labels, each by one helper with all the masks that it holds. Both win against
        the public prototype of the paper. An advantage of 1 reads every label, 0 reads none; ± is the
        standard error of a blind guess."""
    rows = [(a.name, *(minus(str(won or NO_STATE)) for won in (a.prototype, a.ours))) for a in attacks]
    won = table("Advantage over guessing", ["attack", "paper's prototype", "ours"], rows)
    return section("attacks", "Helpers attack", intro, won)
