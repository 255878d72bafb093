"""One training of the accounted figure: in memory, by Opacus, without noise, or over HTTP.

Every run of ours has two figures: against the ad server alone, which does not know who is in a batch, and
against a coalition of it with all helpers but one, which does.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from experiments import memory, opacus_twin
from experiments.data import Split, mnist, shoppers
from experiments.jobs import Found, Job
from experiments.memory import Run
from maskedlark.exact.clip import Clip
from maskedlark.privacy.calibration import noise_for_course, planned
from maskedlark.privacy.course import Course, adserver_epsilon, coalition_epsilon

DELTA = 1e-5
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
    task, data, course = TASKS[job.dataset], _data(job), _course(job)
    model = memory.train(data, _run(job, course.noise))
    return {"y": task.score(model, data), **_costs(course)}


def beside(job: Job) -> Found:
    """Opacus with the multiplier of one helper: one party that is trusted with all labels adds noise once."""
    task, data, course = TASKS[job.dataset], _data(job), _course(job)
    model = opacus_twin.train(data, _run(job, course.noise))
    return {"y": task.score(model, data), **_costs(course)}


def quiet(job: Job) -> Found:
    """Clipped, and no noise at all: what noise takes away is measured from here."""
    task, data = TASKS[job.dataset], _data(job)
    return {"y": task.score(memory.train(data, _run(job, None)), data)}


def over_http(job: Job) -> Found:
    """The same training through real processes, and in memory with the helpers' seeds: both accuracies."""
    from experiments.over_http import both  # noqa: PLC0415 - services, which no other point needs

    course = _course(job)
    return {**both(_data(job), _run(job, course.noise), DELTA).found(), **_costs(course)}


def _data(job: Job) -> Split:
    return TASKS[job.dataset].load().first(int(job.settings["rows"]))


def _run(job: Job, noise: float | None) -> Run:
    task = TASKS[job.dataset]
    return Run(
        task.sizes,
        Clip(task.bound),
        int(job.settings["batch"]),
        int(job.settings["steps"]),
        task.rate,
        job.seed,
        noise=noise,
        shuffled=job.series == PARTITIONED,
        momentum=task.momentum,
    )


def _course(job: Job) -> Course:
    numbers = [int(job.settings[name]) for name in ("rows", "batch", "steps")]
    return course(*numbers, float(job.settings["epsilon"]), job.series == PARTITIONED)


@cache
def course(rows: int, batch: int, steps: int, epsilon: float, partitioned: bool) -> Course:
    """What is charged: Poisson batches by what the ad server learns; a partition is the same for both."""
    rate, used = (1.0, -(-steps // -(-rows // batch))) if partitioned else (batch / rows, steps)
    noise = noise_for_course("gaussian", rate, used, DELTA, epsilon)
    return planned("gaussian", noise, rate, used, DELTA)


def _costs(course: Course) -> dict[str, float]:
    return {
        "noise": course.noise,
        "adserver_epsilon": adserver_epsilon(course),
        "coalition_epsilon": coalition_epsilon(course),
    }
