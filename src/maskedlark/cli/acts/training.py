"""The demo's conversion model: trained through the helpers on labels that nobody holds, and judged.

Beside it stand the same model and optimiser on the same people in the clear, and guessing.
"""

import time
from dataclasses import replace

import torch
from rich.console import Console
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import SGD

from maskedlark.cli.acts import judging
from maskedlark.cli.acts.declaring import DELTA, MODEL
from maskedlark.cli.acts.found import Judged, Model, Point
from maskedlark.cli.acts.people import People, people
from maskedlark.cli.acts.reporting import DATASETS
from maskedlark.cli.acts.tables import table
from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import adserver_epsilon, announced, coalition_epsilon
from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features import Encoder
from maskedlark.randomness import Randomness
from maskedlark.training.client import Client
from maskedlark.training.plan import Plan
from maskedlark.training.predictor import Predictor

EPSILON, STEPS, RATE = 2.0, 40, 0.5
FRESH = 20_000
"""People whom no model was trained on: so many that the standard error of an AUC is under 0.005."""
MARKED = (1, 3, 6, 10, 20, 30)
"""After these steps, and at both ends, the curve has a point. An ε takes a good part of a second; those of
quarters the bar has computed already."""


class Judges:
    """People whom no model was trained on. Their labels are known to the demo alone, which made them up."""

    def __init__(self, encoder: Encoder, count: int = FRESH) -> None:
        self.people = people(count, b"other people, later")
        self._encoder, self._rows = encoder, encoder.encode(self.people.known)

    def judge(self, model: nn.Module, name: str = "", who: str = "") -> Judged:
        """How good a model is on them."""
        predicted = Predictor(model, "bce", MODEL, self._encoder).predict(self._rows)
        return judging.judged(name, who, self.people.bought, predicted)


def act(console: Console, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> Model:
    """Train, judge on others, and show all three models."""
    judges, start = Judges(encoder), time.perf_counter()
    private, plan, course = _through_helpers(client, encoder, judges)
    seconds = time.perf_counter() - start
    clear = _in_the_clear(crowd, encoder, rng)
    found = Model(
        tuple(crowd.known),
        plan.steps,
        plan.batch,
        seconds,
        plan.epsilon,
        plan.coalition_epsilon,
        DELTA,
        FRESH,
        _points(plan, course),
        judges.judge(private, "trained through the helpers", "each browser its own"),
        judges.judge(clear, "trained in the clear on the same people", "whoever trained it"),
        judges.judge(_untrained(encoder), "not trained: guessing", "nobody"),
    )
    _show(console, found)
    return found


def _show(console: Console, found: Model) -> None:
    console.print(
        f"A logistic regression of {', '.join(found.features)} was trained in {found.steps} steps, each on "
        f"about {found.batch:.0f} records that the helpers drew, in {found.seconds:.0f} s. It cost "
        f"[bold]ε = {found.epsilon:.3g} against the ad server alone, {found.coalition:.3g} against it "
        f"with all helpers but one[/], δ = {found.delta:g}.\n"
    )
    title = f"Who will buy? Models judged on {found.people} other people"
    shown = table(title, "model", "who saw its labels", "AUC")
    for each in (found.private, found.clear, found.guessing):
        shown.add_row(each.name, each.who, f"{each.auc:.3f}")
    console.print(shown, "")


def _through_helpers(
    client: Client, encoder: Encoder, judges: Judges
) -> tuple[nn.Module, Plan, dict[int, Judged]]:
    """As a user of PyTorch would write it; a bar on standard error shows steps, loss and ε.

    Nobody who trains so has labels, and so a loss: it is the demo's, on people that it made up.
    """
    model = _untrained(encoder)
    optimiser, course = _optimiser(model), {0: judges.judge(model)}
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
            course[step.number + 1] = judges.judge(model)
            training.show(loss=course[step.number + 1].loss)
        return model, training.plan(), course


def _points(plan: Plan, course: dict[int, Judged]) -> tuple[Point, ...]:
    """What the model was worth along its way, and what a run that ends there costs, with the same noise."""
    marked = [steps for steps in MARKED if steps < plan.steps]
    found = [Point(steps, *_costs(plan, steps), course[steps].auc, course[steps].loss) for steps in marked]
    first = Point(0, 0.0, 0.0, course[0].auc, course[0].loss)
    ended = course[plan.steps]
    return (first, *found, Point(plan.steps, plan.epsilon, plan.coalition_epsilon, ended.auc, ended.loss))


def _costs(plan: Plan, steps: int) -> tuple[float, float]:
    whole = plan.course
    assert whole is not None, "the demo declares no randomised labels"
    least = announced(whole.kind, whole.noise, whole.rate, steps, whole.delta)
    shorter = replace(whole, steps=steps, batches=least)
    return adserver_epsilon(shorter), coalition_epsilon(shorter)


def _in_the_clear(crowd: People, encoder: Encoder, rng: Randomness) -> nn.Module:
    """What somebody who sees every label would get: no masks, no clipping, no noise, no fakes."""
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
    """A logistic regression that says the same of everybody."""
    model = nn.Sequential(nn.Linear(len(encoder), 1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def _optimiser(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=2.0, momentum=0.9)
