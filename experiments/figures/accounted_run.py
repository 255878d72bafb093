"""One training of the accounted figure: in memory, by Opacus, without noise, or over HTTP.

Every run of ours has two figures: against the ad server alone, which does not know who is in a batch, and
against a coalition of it with all helpers but one, which does.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from experiments import costs, memory, opacus_twin
from experiments.costs import DELTA
from experiments.data import Split, mnist, shoppers
from experiments.jobs import Found, Job, Needed
from experiments.memory import Run
from maskedlark.exact.clip import Clip

MASKED, PARTITIONED, OPACUS, QUIET = "masked", "masked, partitioned", "Opacus", "masked, no noise"
ON_HTTP = "masked, over HTTP"


class Task(NamedTuple):
    """A dataset, its network, and how it is trained: chosen once, at ε = 2, and the same for all points."""

    load: Callable[[], Split]
    sizes: tuple[int, ...]
    bound: float
    rate: float
    """The learning rate."""
    momentum: float
    score: Callable[[nn.Module, Split], float]
    unit: str
    digits: int
    """Of a score that are worth showing."""


def auc(model: nn.Module, data: Split) -> float:
    """The chance that a record with the label scores above one without, ties counting half."""
    from scipy.stats import rankdata  # noqa: PLC0415 - slow to import

    with torch.inference_mode():
        scores = model(torch.from_numpy(data.test_features).float() / 256).numpy()[:, 0]
    ranks, positive = rankdata(scores), data.test_labels == 1
    count = int(positive.sum())
    above = float(ranks[positive].sum()) - count * (count + 1) / 2
    return above / (count * (len(ranks) - count))


TASKS = {
    "MNIST": Task(mnist.load, (784, 500, 10), 1.0, 0.4, 0.9, memory.accuracy, "test accuracy (%)", 1),
    "online shoppers": Task(shoppers.load, (30, 1), 0.3, 1.6, 0.9, auc, "AUC on test rows", 3),
}


def masked(job: Job) -> Found:
    """Two helpers' noise on the masked sum, in memory."""
    data, cost = _data(job), job.needed()
    return {"y": _score(job, memory.train(data, run(job, cost["noise"])), data), **cost}


def beside(job: Job) -> Found:
    """Opacus with the multiplier of one helper: one party that is trusted with all labels adds noise once."""
    data, cost = _data(job), job.needed()
    return {"y": _score(job, opacus_twin.train(data, run(job, cost["noise"])), data), **cost}


def quiet(job: Job) -> Found:
    """Clipped, and no noise at all: what noise takes away is measured from here."""
    data = _data(job)
    return {"y": _score(job, memory.train(data, run(job, None)), data)}


def over_http(job: Job) -> Found:
    """The same training through real processes, and in memory with the helpers' seeds: both scores."""
    from experiments.over_http import both  # noqa: PLC0415 - services, which no other point needs

    cost = job.needed()
    found = both(_data(job), run(job, cost["noise"]), DELTA, TASKS[job.dataset].score)
    return {**found.found(), **cost}


def needs(job: Job) -> Needed:
    """Its noise, and what the training costs both adversaries."""
    rows, batch, steps = (int(job.settings[name]) for name in ("rows", "batch", "steps"))
    return costs.needs(rows, batch, steps, float(job.settings["epsilon"]), job.series == PARTITIONED)


def run(job: Job, noise: float | None) -> Run:
    """Its training, by its settings alone."""
    given = job.settings
    return Run(
        tuple(map(int, str(given["network"]).split("-"))),
        Clip(float(given["bound"]), fraction=int(given["fraction"])),
        int(given["batch"]),
        int(given["steps"]),
        float(given["learning_rate"]),
        job.seed,
        noise=noise,
        helpers=int(given["helpers"]),
        shuffled=job.series == PARTITIONED,
        momentum=float(given["momentum"]),
    )


def _score(job: Job, model: nn.Module, data: Split) -> float:
    return TASKS[job.dataset].score(model, data)


def _data(job: Job) -> Split:
    return TASKS[job.dataset].load().first(int(job.settings["rows"]))
