"""Accuracy against noise on gradients, for the paper's bounds (its section 5.2): as run, and as it should be.

As the authors ran it, every record's gradient is scaled to ψ in L2, Laplace noise that ignores ψ is added to
each coordinate, and steps are not composed. With the guarantee stated correctly, noise is Gaussian and covers
2ψ, batches are drawn by chance, and ε is that of the whole training.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from experiments import authors, floats, memory, over_http, settings
from experiments.data import Split, wbcd
from experiments.figures.global_dp_told import (
    AS_RUN,
    AUTHORS,
    BY_BOUND,
    BY_RECORD,
    HTTP,
    RAW,
    TRUE,
    draw,
    named,
    text,
)
from experiments.jobs import Found, Job
from experiments.memory import Laplace, Run
from experiments.settings import MNIST, WBCD, WBCD_RAW, Setting
from experiments.size import Size
from maskedlark.privacy import calibration
from maskedlark.privacy.course import adserver_epsilon, coalition_epsilon

NAME = "global_dp"
TITLE = "Accuracy against noise on gradients"
__all__ = ["NAME", "TITLE", "draw", "jobs", "text"]

DELTA = 1e-5
_LOGS = {
    "MNIST": (-1.0, -0.5263, -0.0526, 0.4211, 0.8947, 1.5263),
    "WBCD": (-4.0, -3.5789, -3.3684, -3.1579, -2.9474, -2.7368, -2.5263, -2.1053, -1.0526, 0.0),
}
_BOUNDS = {"MNIST": (10.0, 5.0, 2.0, 1.0), "WBCD": (100.0, 48.0, 19.0, 1.0)}
_OTHER_LOGS = (-0.0526, 0.4211)
_EPSILONS = (1.0, 3.0, 10.0)
_EVERY_EPSILON = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_MANY = 10
"""Seeds of a point at which a single run is chance."""


def jobs(size: Size) -> list[Job]:
    """All series of both datasets, and one point over HTTP."""
    found = []
    for bound in _bounds("MNIST", size):
        found += _as_run(MNIST, AS_RUN, as_run, bound, size, size.seeds)
        found += _accounted(MNIST, bound, size)
    found += [] if size is Size.QUICK else _others(size)
    for bound in _bounds("WBCD", size):
        found += _as_run(WBCD_RAW, RAW, raw, bound, size, range(size.pick(3, _MANY, _MANY)))
        found += _accounted(WBCD, bound, size)
    return [*found, _over_http(size)]


def _bounds(dataset: str, size: Size) -> Sequence[float]:
    every = [float(name.removeprefix("bound=")) for name in authors.series(AUTHORS, dataset)]
    chosen = _BOUNDS[dataset]
    return size.pick((chosen[0], chosen[-1]), chosen, every)


def _logs(dataset: str, size: Size) -> Sequence[float]:
    every = {
        point.x
        for name in authors.series(AUTHORS, dataset)
        for point in authors.points(AUTHORS, dataset, name)
    }
    chosen = _LOGS[dataset]
    return size.pick(chosen[2::3], chosen, sorted(every))


def _as_run(
    setting: Setting, kind: str, way: Callable[[Job], Found], bound: float, size: Size, seeds: range
) -> list[Job]:
    given = {**setting.settings(size), "bound": bound}
    return [
        Job(setting.dataset, named(kind, bound), log, seed, way, given, setting.seconds)
        for log in _logs(setting.dataset, size)
        for seed in seeds
    ]


def _others(size: Size) -> list[Job]:
    """Noise that the paper's text and its algorithm 3 speak of: to see that it does not fit."""
    given = {**MNIST.settings(size), "bound": _BOUNDS["MNIST"][0]}
    return [
        Job("MNIST", named(kind, _BOUNDS["MNIST"][0]), log, seed, way, given, 1.5 * MNIST.seconds)
        for kind, way in ((BY_BOUND, by_bound), (BY_RECORD, by_record))
        for log in _OTHER_LOGS
        for seed in size.seeds
    ]


def _accounted(setting: Setting, bound: float, size: Size) -> list[Job]:
    given = {**setting.settings(size), "bound": bound, "delta": DELTA, "fraction": setting.fraction}
    return [
        Job(setting.dataset, named(TRUE, bound), epsilon, seed, accounted, given, setting.seconds)
        for epsilon in size.pick(_EPSILONS[1:2], _EPSILONS, _EVERY_EPSILON)
        for seed in size.seeds
    ]


def _over_http(size: Size) -> Job:
    bound, given = _BOUNDS["WBCD"][-1], WBCD.settings(size)
    given |= {
        "epochs": size.pick(WBCD.epochs // 5, WBCD.epochs, WBCD.epochs),
        "bound": bound,
        "delta": DELTA,
        "fraction": WBCD.fraction,
    }
    return Job("WBCD", named(HTTP, bound), _EPSILONS[1], 0, http, given, 30, alone=True)


# What a job does.


def authors_noise(log: float) -> Laplace:
    """What fits the authors' points: each of two helpers' on the sum of a batch, whatever the bound."""
    return Laplace(10.0**-log, helpers=2)


def as_run(job: Job) -> Found:
    """On bytes, by the exact engine."""
    return _trained(job, authors_noise(job.x))


def by_bound(job: Job) -> Found:
    """The same with ψ/ε, as the text has it."""
    noise = authors_noise(job.x)
    return _trained(job, noise._replace(scale=noise.scale * float(job.settings["bound"])))


def by_record(job: Job) -> Found:
    """The same with noise on every record, as algorithm 3 has it."""
    return _trained(job, authors_noise(job.x)._replace(records=int(job.settings["batch"])))


def _trained(job: Job, noise: Laplace) -> Found:
    data, own = settings.data(job), settings.run(job, float(job.settings["bound"]))
    model = memory.train(data, replace(own, shuffled=True, laplace=noise))
    return {"y": memory.accuracy(model, data)}


def raw(job: Job) -> Found:
    """On features in their units of measurement, in plain floats: bytes cannot hold them."""
    values, labels = wbcd.raw()
    x, end = values.astype(np.float32), wbcd.TRAINED
    own = replace(settings.run(job, float(job.settings["bound"])), laplace=authors_noise(job.x))
    model = floats.train(x[:end], labels[:end], own)
    return {"y": floats.accuracy(model, x[end:], labels[end:])}


def accounted(job: Job) -> Found:
    """With Gaussian noise of two helpers, such that the whole training costs this ε."""
    data, own, cost = _private(job)
    model = memory.train(data, replace(own, noise=cost["noise"]))
    return {"y": memory.accuracy(model, data), **cost}


def http(job: Job) -> Found:
    """The same through real processes."""
    data, own, cost = _private(job)
    return {**over_http.both(data, replace(own, noise=cost["noise"]), DELTA).found(), **cost}


def _private(job: Job) -> tuple[Split, Run, dict[str, float]]:
    data = settings.data(job)
    own = settings.run(job, float(job.settings["bound"]), int(job.settings["fraction"]))
    return data, own, _cost(own.batch / len(data.features), own.steps, job.x)


@lru_cache
def _cost(rate: float, steps: int, epsilon: float) -> dict[str, float]:
    """The noise, and what the training costs against the ad server alone and with all helpers but one."""
    noise = calibration.noise_for_course("gaussian", rate, steps, DELTA, epsilon)
    course = calibration.planned("gaussian", noise, rate, steps, DELTA)
    return {
        "noise": noise,
        "adserver_epsilon": adserver_epsilon(course),
        "coalition_epsilon": coalition_epsilon(course),
    }
