"""The demo's model on labels that nobody holds: fitted from one release, and trained by private gradients.

Both are compared with the same model trained in the clear, and with guessing, on other people whose labels
the demo knows.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import SGD

from maskedlark.cli.demo_steps.people import People, people
from maskedlark.cli.demo_steps.reporting import DATASETS, DELTA, MODEL
from maskedlark.cli.demo_steps.results import Bucket, Fit, Model, ModelQuality, Point
from maskedlark.cli.output import Screen, table
from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import adserver_epsilon, batch_bound, coalition_epsilon
from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features import Encoder
from maskedlark.fitting import LogisticRegression
from maskedlark.randomness import Randomness
from maskedlark.training.client import Client
from maskedlark.training.plan import TrainingPlan
from maskedlark.training.predictor import Predictor

FIT_EPSILON = 1.0
EPSILON, STEPS, RATE = 2.0, 40, 0.5
FRESH = 20_000
"""How many people to judge by: enough for a standard error of an AUC below 0.005."""
MARKED = (1, 3, 6, 10, 20, 30)
"""The curve's points besides both ends: few, since an ε takes long; the bar has cached the quarters'."""
BUCKETS = 10
LEAST = 100
"""Smaller buckets are dropped: their share of buyers says little."""

Labels = NDArray[np.int64]
Chances = NDArray[np.float64]


QualityByStep = dict[int, ModelQuality]
"""The model's quality by number of steps."""
Judge = Callable[..., ModelQuality]
"""Judges a model, or what it predicts for rows, optionally given a name and who saw its labels."""


def judge_by(encoder: Encoder) -> Judge:
    """Judge by people that no model was trained on, whose labels only the demo knows."""
    others = people(FRESH, b"other people, later")
    rows = encoder.encode(others.known)

    def judge(model: nn.Module | LogisticRegression, name: str = "", who: str = "") -> ModelQuality:
        if isinstance(model, LogisticRegression):
            predicted = model.predict_proba(rows)[:, 1]
        else:
            predicted = Predictor(model, "bce", MODEL, encoder).predict(rows)
        labels = others.bought
        figures = auc(labels, predicted), log_loss(labels, predicted), calibration(labels, predicted)
        return ModelQuality(name, who, *figures)

    return judge


def run(console: Screen, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> Model:
    """Fit, train, judge on others, and show all models."""
    judge = judge_by(encoder)
    fit, start = _fit(client, crowd, encoder, judge), time.perf_counter()
    private, plan, quality = _with_helpers(client, encoder, judge)
    seconds, clear = time.perf_counter() - start, _in_the_clear(crowd, encoder, rng)
    models = (
        judge(private, f"trained by {plan.steps} private gradients", "each browser its own"),
        judge(clear, "trained in the clear", "whoever trained it"),
        judge(_untrained(encoder), "not trained: guessing", "nobody"),
    )
    costs, points = (plan.epsilon, plan.coalition_epsilon, DELTA), _points(plan, quality)
    features = tuple(crowd.known)
    console.say(f"""A logistic regression of {", ".join(features)} was fitted from one noisy sum of the
        helpers, in {fit.seconds:.0f} s. It cost [bold]ε = {fit.epsilon:.3g} against everybody[/]: the ad
        server has the features, and asks for no more than Σ features · label.""")
    console.say(f"""The same by private gradients took {plan.steps} steps, each on about {plan.batch:.0f}
        records that the helpers drew, and {seconds:.0f} s. It cost
        [bold]ε = {plan.epsilon:.3g} against the ad server alone, {plan.coalition_epsilon:.3g} against it with
        all helpers but one[/], δ = {DELTA:g}.""")
    title = f"Who will buy? Models judged on {FRESH} other people"
    spent = (f"{fit.epsilon:.3g}", f"{plan.epsilon:.3g} to {plan.coalition_epsilon:.3g}", "∞", "0")
    rows = [
        (each.name, each.who, cost, f"{each.auc:.3f}")
        for each, cost in zip((fit.judged, *models), spent, strict=True)
    ]
    console.print(table(("model", "who saw its labels", "ε", "AUC"), rows, title), "")
    return Model(features, plan.steps, plan.batch, seconds, *costs, FRESH, points, fit, *models)


def _fit(client: Client, crowd: People, encoder: Encoder, judge: Judge) -> Fit:
    """Fit as a user of scikit-learn would, but for y, which nobody has."""
    start = time.perf_counter()
    model = LogisticRegression(
        client,
        MODEL,
        epsilon=FIT_EPSILON,
        datasets=[DATASETS[Purpose.TRAIN]],
        encoder=encoder,
        map="columns",  # As they are, as in all models of the demo.
    )
    model.fit(crowd.known)
    judged = judge(model, "fitted from one release", "each browser its own")
    return Fit(model.answered_.balance.charged_epsilon, time.perf_counter() - start, judged)


def _with_helpers(
    client: Client, encoder: Encoder, judge: Judge
) -> tuple[nn.Module, TrainingPlan, QualityByStep]:
    """Train as a user of PyTorch would; a bar on standard error shows steps, loss and ε.

    A caller who trains this way has no labels, so the loss is the demo's, on people that it made up.
    """
    model = _untrained(encoder)
    optimiser, quality = _optimiser(model), {0: judge(model)}
    with client.training(
        model,
        loss="bce",
        datasets=[DATASETS[Purpose.TRAIN]],
        tag=MODEL,
        sampling_rate=RATE,
        steps=STEPS,
        epsilon=EPSILON,
        delta=DELTA,
        encoder=encoder,
    ) as training:
        for step in training:
            optimiser.zero_grad()
            step.backward()
            optimiser.step()
            quality[step.number + 1] = judge(model)
            training.show(loss=quality[step.number + 1].loss)
        return model, training.plan(), quality


def _points(plan: TrainingPlan, quality: QualityByStep) -> tuple[Point, ...]:
    """The model's quality during training, and the cost of a run that ends there, with the same noise."""
    costs = {0: (0.0, 0.0), **{steps: _costs(plan, steps) for steps in MARKED if steps < plan.steps}}
    costs[plan.steps] = (plan.epsilon, plan.coalition_epsilon)
    return tuple(
        Point(steps, *cost, quality[steps].auc, quality[steps].loss) for steps, cost in costs.items()
    )


def _costs(plan: TrainingPlan, steps: int) -> tuple[float, float]:
    whole = plan.session_charge
    assert whole is not None, "the demo declares no randomised labels"
    least = batch_bound(whole.mechanism, whole.noise, whole.rate, steps, whole.delta)
    shorter = replace(whole, steps=steps, batches=least)
    return adserver_epsilon(shorter), coalition_epsilon(shorter)


def _in_the_clear(crowd: People, encoder: Encoder, rng: Randomness) -> nn.Module:
    """Train with every label visible: no masks, no clipping, no noise, no fakes."""
    features = torch.from_numpy(encoder.encode(crowd.known)).float() / 2**FEATURE_EXPONENT
    labels = torch.from_numpy(crowd.bought).float()
    model = _untrained(encoder)
    optimiser = _optimiser(model)
    for _ in range(STEPS):
        drawn = torch.from_numpy(rng.unit(len(labels)) < RATE)
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(model(features[drawn])[:, 0], labels[drawn])
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def _untrained(encoder: Encoder) -> nn.Module:
    """A logistic regression that predicts the same for everyone."""
    model = nn.Sequential(nn.Linear(len(encoder), 1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def _optimiser(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=2.0, momentum=0.9)


def auc(labels: Labels, scores: Chances) -> float:
    """How often a buyer's score is above a non-buyer's; ties count half."""
    ones, zeros = scores[labels == 1], scores[labels == 0]
    return float(mannwhitneyu(ones, zeros).statistic) / (len(ones) * len(zeros))


def log_loss(labels: Labels, predicted: Chances) -> float:
    """The mean negative log-probability of the true label."""
    right = np.where(labels == 1, predicted, 1 - predicted)
    return float(-np.log(np.clip(right, 1e-12, 1)).mean())


def calibration(labels: Labels, predicted: Chances) -> tuple[Bucket, ...]:
    """Equal-width buckets of predicted chances: their mean, and the share who bought."""
    places = np.minimum((predicted * BUCKETS).astype(int), BUCKETS - 1)
    members = (places == place for place in range(BUCKETS))
    return tuple(_bucket(labels[mine], predicted[mine]) for mine in members if mine.sum() >= LEAST)


def _bucket(labels: Labels, predicted: Chances) -> Bucket:
    share = float(labels.mean())
    error = float(np.sqrt(share * (1 - share) / len(labels)))
    return Bucket(float(predicted.mean()), share, error, len(labels))
