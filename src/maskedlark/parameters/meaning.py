"""What a document means, in plain words: for those who draft one, and those who are asked to trust it."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import Bound, against_coalition
from maskedlark.parameters.settings import Budget, Delay, TrainedModel

Line = tuple[str, str]
WARNING = "warning"
MOST_DATED = 1 << 37
"""Documents may name moments that calendars here do not reach."""


def meaning(document: Document) -> list[Line]:
    """One line a setting: what it is about, and what it says."""
    return [
        *_who(document),
        *_protection(document),
        *_measured(document),
        *(line for model in document.models for line in _model(model)),
        *_together(document.models),
        *_reports(document),
    ]


def _who(document: Document) -> list[Line]:
    names = ", ".join(helper.name for helper in document.helpers)
    others = len(document.helpers) - 1
    return [
        ("document", f"{document.origin}, version {document.version}, until {_moment(document.not_after)}"),
        ("digest", document.digest.hex()),
        ("document key", f"{document.document_key} signs the next document, and nothing else"),
        ("request key", f"{document.request_key} signs requests to helpers, and no document"),
        ("helpers", f"{names}. Nobody reads a label or value unless all {others + 1} collude"),
    ]


def _protection(document: Document) -> list[Line]:
    lines = [
        ("k", f"an answer is about at least {document.k} records, fakes included"),
        ("budget", f"a source costs at most {_budget(document.budget)} over its life, all answers together"),
    ]
    if document.training is not None:
        alone, coalition = document.training.adserver, document.training.coalition
        lines += [
            ("training", f"at most {_budget(alone)} of it against the ad server alone"),
            ("training", f"at most {_budget(coalition)} against the ad server with all helpers but one"),
        ]
    most = against_coalition(document)
    lines.append(
        (
            "coalition",
            f"a source costs at most {_budget(most)} against the ad server with all helpers but one, {most}",
        )
    )
    for purpose, mechanism in document.mechanisms.items():
        kind = mechanism.kind.capitalize()
        floor = f"{mechanism.noise_floor:g} times the sensitivity"
        lines.append(("noise", f"to {purpose}: {kind}, of scale {floor} or more, from every helper"))
    return lines


def _measured(document: Document) -> list[Line]:
    lines = [
        (
            "value",
            f"{value.name} from {value.low} to {value.high}: one record moves a sum by up to {value.width()}",
        )
        for value in document.values
    ]
    keys = ", ".join(document.keys)
    return [*lines, ("keys", f"sums may be grouped by {keys}; helpers see these")] if keys else lines


def _model(model: TrainedModel) -> list[Line]:
    shown = {"all": "all candidates", "pair": "a pair of candidates"}
    candidates = shown.get(model.candidates, f"a sample of {model.sample} candidates")
    spaces = " and ".join(f"{label.kind} ({len(label.space())} labels)" for label in model.labels)
    lines = [
        (
            "model",
            f"{model.tag}: {model.features} byte features, {spaces}, {candidates}, "
            f"gradients clipped at {model.gradient_bound:g}",
        )
    ]
    if model.candidates != "all":
        lines.append(
            (
                WARNING,
                f"{model.tag} shows few candidates: a helper can guess labels better than chance, and "
                "against a coalition the budget does not hold in full. 'all' gives nothing to guess from",
            )
        )
    return [*lines, *_local(model)]


def _local(model: TrainedModel) -> list[Line]:
    """Local noise, and what it promises for everything that one source reveals under this tag."""
    noise = model.feature_noise.declared() if model.feature_noise else None
    promised = model.promised()
    lines: list[Line] = []
    if noise is not None:
        lines.append(
            (
                "local DP",
                f"{model.tag}: ε = {noise.epsilon:g} a feature is ε = {promised.features:g} for the whole "
                f"vector of {model.features}, each changing by up to {noise.sensitivity:g}; "
                f"ε = {promised.any_features:g} if any byte may become any other. It protects no label",
            )
        )
    if model.randomised_response is not None:
        lines.append(
            ("local DP", f"{model.tag}: ε = {promised.labels:g} for all its labels of a source together")
        )
    if not math.isinf(promised.total):
        lines.append(
            ("local DP", f"{model.tag}: ε = {promised.total:g} for the whole record, features and labels")
        )
    return lines or [("local DP", f"{model.tag}: none; helpers see the features as they are")]


def _together(models: Sequence[TrainedModel]) -> list[Line]:
    """Local noise is drawn for every source and tag: what a source reveals under several tags adds up."""
    if len(models) < 2 or not any(model.feature_noise or model.randomised_response for model in models):
        return []
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
    return [
        (
            "local DP",
            "drawn once for every source and tag: a source with several tags costs the sum over its tags. "
            f"With all {len(models)}: {listed}",
        )
    ]


def _reports(document: Document) -> list[Line]:
    day = 86_400
    window, life = document.attribution_window_s / day, document.report_lifetime_s / day
    lines = [
        ("reports", f"sent {window:g} days after the ad plus {_delay(document.delay)}, converted or not"),
        ("reports", f"helpers take them for {life:g} days"),
    ]
    if document.fake_rate > 0:
        rate = f"{100 * document.fake_rate:g} % of sources"
        lines.append(("fakes", f"{rate} send a fake as well, from {len(document.decoys)} public decoy rows"))
    return lines


def _moment(seconds: int) -> str:
    if seconds > MOST_DATED:
        return "long after the year 9000"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _budget(budget: Budget | Bound) -> str:
    return f"(ε, δ) = ({budget.epsilon:g}, {budget.delta:g})"


def _delay(delay: Delay) -> str:
    most = f"{delay.most_s / 3600:g} hours"
    if delay.mean_s is None:
        return f"a random wait of up to {most}"
    return f"a random wait of {delay.mean_s / 3600:g} hours on average, at most {most}"
