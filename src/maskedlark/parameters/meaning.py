"""What a document means, in plain words, for its author and for those asked to trust it."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from maskedlark.core.declared import Bag, Bytes, Category
from maskedlark.parameters.document import Document
from maskedlark.parameters.drafting import DAY_S
from maskedlark.parameters.policy import Bound, against_coalition
from maskedlark.parameters.settings import Budget, Delay, TrainedModel

Line = tuple[str, str]
WARNING = "warning"
MAX_DATED = 1 << 37
"""Documents may name moments beyond what calendars here reach."""
_CHECKS = {
    "none": "none: helpers cannot tell whether a report is true; a report may add any number to a sum",
    "bits": "every report proves that its labels and values are as declared; helpers drop those that do not. "
    "A browser may still lie within the range",
}


def meaning(document: Document) -> list[Line]:
    """One line per setting: its subject, and what it says."""
    parts = (_who, _protection, _measured, _models, _together, _reports)
    return [line for part in parts for line in part(document)]


def _who(document: Document) -> Iterator[Line]:
    names = ", ".join(helper.name for helper in document.helpers)
    count = len(document.helpers)
    yield "document", f"{document.origin}, version {document.version}, until {moment(document.not_after)}"
    yield "digest", document.digest.hex()
    yield "document key", f"{document.document_key} signs the next document, and nothing else"
    yield "request key", f"{document.request_key} signs requests to helpers, and no document"
    yield "helpers", f"{names}. Nobody reads a label or value unless all {count} collude"


def _protection(document: Document) -> Iterator[Line]:
    others = "against the ad server with all helpers but one"
    yield "k", f"an answer is about at least {document.k} records, fakes included"
    yield "budget", f"a source costs at most {_budget(document.budget)} over its life, all answers together"
    if document.training is not None:
        yield "training", f"at most {_budget(document.training.adserver)} of it against the ad server alone"
        yield "training", f"at most {_budget(document.training.coalition)} {others}"
    most = against_coalition(document)
    yield "coalition", f"a source costs at most {_budget(most)} {others}, {most}"
    for function, mechanism in document.mechanisms.items():
        floor = f"{mechanism.noise_floor:g} times the sensitivity"
        kind = mechanism.kind.capitalize()
        yield "noise", f"{function}: {kind}, of scale {floor} or more, from every helper"
    if document.has_sessions:
        yield "sessions", "may be opened: half of a model's δ is for them, and other releases need more noise"


def _measured(document: Document) -> Iterator[Line]:
    for value in document.values:
        bounds = f"from {value.low} to {value.high}"
        yield "value", f"{value.name} {bounds}: one record moves a sum by up to {value.width()}"
    if document.keys:
        yield "keys", f"sums may be grouped by {', '.join(document.keys)}; helpers see these"


def _models(document: Document) -> Iterator[Line]:
    shown = {"all": "all candidates", "pair": "a pair of candidates"}
    for model in document.models:
        candidates = shown.get(model.candidates, f"a sample of {model.sample} candidates")
        spaces = " and ".join(f"{label.kind} ({len(label.space())} labels)" for label in model.labels)
        clipped = f"gradients clipped at {model.gradient_bound:g}"
        yield "model", f"{model.tag}: {_columns(model)}, {spaces}, {candidates}, {clipped}"
        if model.candidates != "all":
            yield (
                WARNING,
                f"{model.tag} shows few candidates: a helper can guess labels better than chance, and "
                "against a coalition the budget does not hold in full. 'all' gives nothing to guess from",
            )
        for line in _local(model) or ["none; helpers see the features as they are"]:
            yield "local DP", f"{model.tag}: {line}"


def _columns(model: TrainedModel) -> str:
    """What a record shows of a source."""
    named = []
    for column in model.columns:
        match column:
            case Bytes():
                named.append(f"{column.count} byte features")
            case Category():
                named.append(f"a category of {column.size}")
            case Bag():
                named.append(f"{column.length} categories of {column.size}")
    return ", ".join(named)


def _local(model: TrainedModel) -> list[str]:
    """Local noise, and what it guarantees for everything that one source reveals under this tag."""
    noise, promised, lines = model.feature_noise, model.promised(), []
    if noise is not None and not model.only_bytes:
        lines.append(
            f"ε = {noise.epsilon:g} for each of {model.features} byte features, changing by up to "
            f"{noise.sensitivity:g}; helpers see the categories as they are. It protects no label"
        )
    elif noise is not None:
        lines.append(
            f"ε = {noise.epsilon:g} a feature is ε = {promised.features:g} for the whole "
            f"vector of {model.features}, each changing by up to {noise.sensitivity:g}; "
            f"ε = {promised.any_features:g} if any byte may become any other. It protects no label"
        )
    if model.randomised_response is not None:
        lines.append(f"ε = {promised.labels:g} for all its labels of a source together")
    if not math.isinf(promised.total):
        lines.append(f"ε = {promised.total:g} for the whole record, features and labels")
    return lines


def _together(document: Document) -> Iterator[Line]:
    """Local noise is drawn per source and tag: what a source reveals under several tags adds up."""
    models = document.models
    if len(models) < 2 or not any(model.feature_noise or model.randomised_response for model in models):
        return
    promised = [model.promised() for model in models]
    sums = {
        "features": math.fsum(each.features for each in promised),
        "features if any byte may become any other": math.fsum(each.any_features for each in promised),
        "labels": math.fsum(each.labels for each in promised),
        "features and labels": math.fsum(each.total for each in promised),
    }
    listed = "; ".join(
        f"no bound for {what}" if math.isinf(total) else f"ε = {total:g} for {what}"
        for what, total in sums.items()
    )
    yield (
        "local DP",
        "drawn once for every source and tag: a source with several tags costs the sum over its tags. "
        f"With all {len(models)}: {listed}",
    )


def _reports(document: Document) -> Iterator[Line]:
    window, life = document.attribution_window_s / DAY_S, document.report_lifetime_s / DAY_S
    yield "reports", f"sent {window:g} days after the ad plus {_delay(document.delay)}, converted or not"
    yield "reports", f"helpers take them for {life:g} days"
    yield "checks", _CHECKS[document.checks]
    rate = f"{100 * document.fake_rate:g} % of sources"
    fakes = f"{rate} send a fake as well, from {len(document.decoys)} public decoy rows"
    yield "fakes", fakes if document.fake_rate else "none: a source stands behind every report"


def moment(seconds: int) -> str:
    """In UTC, by the minute."""
    if seconds > MAX_DATED:
        return "long after the year 9000"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _budget(budget: Budget | Bound) -> str:
    return f"(ε, δ) = ({budget.epsilon:g}, {budget.delta:g})"


def _delay(delay: Delay) -> str:
    most = f"{delay.max_s / 3600:g} hours"
    if delay.mean_s is None:
        return f"a random wait of up to {most}"
    return f"a random wait of {delay.mean_s / 3600:g} hours on average, at most {most}"
