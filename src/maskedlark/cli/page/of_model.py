"""The sections about the model: its training, and how good it is. Or that there is none."""

from maskedlark.cli.acts.found import Model
from maskedlark.cli.page import plots
from maskedlark.cli.page.markup import Markup, element
from maskedlark.cli.page.section import figure, section
from maskedlark.cli.page.tables import folded, table

NO_MODEL = "No model was trained in this run: pip install 'maskedlark[train]' brings what that needs."


def trained(model: Model | None) -> Markup:
    """The model: its way, and what it is worth."""
    title = "A model trained on labels that nobody holds"
    if model is None:
        return section("model", title, NO_MODEL)
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
    way = table(
        "The training's course",
        ["steps", "ε, ad server alone", "ε, with all helpers but one", "AUC", "log-loss"],
        [
            [f"{p.steps}", f"{p.epsilon:.2f}", f"{p.coalition:.2f}", f"{p.auc:.3f}", f"{p.loss:.3f}"]
            for p in model.points
        ],
    )
    return section("model", title, intro, drawn, element("p", note), folded(way))


def _models(model: Model) -> Markup:
    heads = ["model", "who saw its labels", "AUC", "log-loss"]
    judged = (model.private, model.clear, model.guessing)
    rows = [[each.name, each.who, f"{each.auc:.3f}", f"{each.loss:.3f}"] for each in judged]
    return table("Who will buy?", heads, rows)


def calibrated(model: Model | None) -> Markup:
    """How good it is, and whether what it says comes true."""
    title = "How good is it?"
    if model is None:
        return section("calibration", title, NO_MODEL)
    intro = (
        f"Models are judged on {model.people:,} other people. The plot groups them by how likely a model "
        "thinks that they buy, and shows how many did: on the diagonal it is right. Whiskers are two "
        "standard errors of that share."
    )
    drawn = figure(
        [plots.calibration(model)],
        [
            ("private", "circle", "trained through the helpers"),
            ("clear", "square", "trained in the clear"),
            ("guess", "line", "perfect"),
        ],
        "one",
    )
    rows = [
        [name, _percent(b.predicted), f"{_percent(b.happened)} ± {_percent(2 * b.error)}", f"{b.people:,}"]
        for name, judged in (("private", model.private), ("in the clear", model.clear))
        for b in judged.calibration
    ]
    heads = ["model", "predicted", "came true", "people"]
    calibration = folded(table("Calibration", heads, rows), "The plot as a table")
    return section("calibration", title, intro, _models(model), calibration, beside=drawn)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
