"""The demo's conversion model: trained through the helpers on labels that nobody holds, and judged.

Beside it stand the same model and optimiser on the same people in the clear, and guessing.
"""

import time
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import SGD

from maskedlark.adserver.client import Client
from maskedlark.cli.acts.declaring import DELTA, MODEL
from maskedlark.cli.acts.people import People, people
from maskedlark.cli.acts.reporting import DATASETS
from maskedlark.cli.acts.tables import table
from maskedlark.core.purpose import Purpose
from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features import Encoder
from maskedlark.randomness import Randomness
from maskedlark.training.plan import Plan
from maskedlark.training.predictor import Predictor

EPSILON, STEPS, RATE = 2.0, 40, 0.5
FRESH = 20_000
"""People whom no model was trained on: so many that the standard error of an AUC is under 0.005."""


def act(console: Console, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> None:
    """Train, judge on others, and show all three models."""
    start = time.perf_counter()
    private, plan = _through_helpers(client, encoder)
    console.print(
        f"A logistic regression of {', '.join(crowd.known)} was trained in {plan.steps} steps, each on about "
        f"{plan.batch:.0f} records that the helpers drew, in {time.perf_counter() - start:.0f} s. It cost "
        f"[bold]ε = {plan.epsilon:.3g} against the ad server alone, {plan.coalition_epsilon:.3g} against it "
        f"with all helpers but one[/], δ = {DELTA:g}.\n"
    )
    models = {
        ("trained through the helpers", "each browser its own"): private,
        ("trained in the clear on the same people", "whoever trained it"): _in_the_clear(crowd, encoder, rng),
        ("not trained: guessing", "nobody"): _untrained(encoder),
    }
    _judged(console, models, encoder)


def _through_helpers(client: Client, encoder: Encoder) -> tuple[nn.Module, Plan]:
    """As a user of PyTorch would write it; a bar on standard error shows steps and ε."""
    model = _untrained(encoder)
    optimiser = _optimiser(model)
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
        return model, training.plan()


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


def _judged(console: Console, models: Mapping[tuple[str, str], nn.Module], encoder: Encoder) -> None:
    fresh = people(FRESH, b"other people, later")
    title = f"Who will buy? Models judged on {FRESH} other people"
    shown = table(title, "model", "who saw its labels", "AUC")
    for (name, who), model in models.items():
        predicted = Predictor(model, "bce", MODEL, encoder).predict(fresh.known)
        shown.add_row(name, who, f"{auc(fresh.bought, predicted):.3f}")
    console.print(shown, "")


def auc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float:
    """How often a buyer's score is over that of somebody who did not buy; equal scores count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ones = int(labels.sum())
    below = float(ranks[labels == 1].sum()) - ones * (ones + 1) / 2
    return below / (ones * (len(labels) - ones))
