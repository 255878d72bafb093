"""Accuracy against noise on gradients, for the paper's bounds (its section 5.2): as run, and as it should be.

As the authors ran it, every record's gradient is scaled to ψ in L2, Laplace noise that ignores ψ is added to
each coordinate, and steps are not composed. With the guarantee stated correctly, noise is Gaussian and covers
2ψ, batches are drawn by chance, and ε is that of the whole training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from experiments import authors, costs, floats, memory, over_http, settings
from experiments.costs import DELTA
from experiments.data import wbcd
from experiments.figures.global_dp_drawn import draw
from experiments.figures.global_dp_series import AS_RUN, AUTHORS, BY_BOUND, BY_RECORD, HTTP, RAW, TRUE, named
from experiments.figures.global_dp_told import text
from experiments.jobs import Found, Job, Needed, Value
from experiments.memory import Laplace
from experiments.settings import MNIST, WBCD, WBCD_RAW, Setting
from experiments.size import Size

NAME = "global_dp"
TITLE = "Accuracy against noise on gradients"
__all__ = ["NAME", "TITLE", "draw", "jobs", "text"]

_LOGS = {
    "MNIST": (-1.0, -0.5263, -0.0526, 0.4211, 0.8947, 1.5263),
    "WBCD": (-4.0, -3.5789, -3.3684, -3.1579, -2.9474, -2.7368, -2.5263, -2.1053, -1.0526, 0.0),
}
_BOUNDS = {"MNIST": (10.0, 5.0, 2.0, 1.0), "WBCD": (100.0, 48.0, 19.0, 1.0)}
_OTHER_LOG = -0.0526
_HELPERS = 2
_EPSILONS = (1.0, 3.0, 10.0)
_EVERY_EPSILON = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SEEDS = {RAW: (5, 30, 30), TRUE: (3, 10, 10)}
"""Of a point of WBCD, by kind and size: there are 69 rows to test with, and where noise is large a single run
is chance."""


def jobs(size: Size) -> list[Job]:
    """All series of both datasets, and one point over HTTP."""
    found = []
    for bound in _bounds("MNIST", size):
        found += _as_run(MNIST, AS_RUN, as_run, bound, size)
    found += [] if size is Size.QUICK else _others(size)
    for bound in _bounds("WBCD", size):
        found += _as_run(WBCD_RAW, RAW, raw, bound, size)
    for setting in (MNIST, WBCD):
        for bound in _bounds(setting.dataset, size):
            found += _accounted(setting, bound, size)
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


def _seeds(dataset: str, kind: str, size: Size) -> range:
    return range(size.pick(*_SEEDS[kind])) if dataset == "WBCD" else size.seeds


def _as_run(setting: Setting, kind: str, way: Callable[[Job], Found], bound: float, size: Size) -> list[Job]:
    given = {**setting.settings(size), "bound": bound, "noise_helpers": _HELPERS}
    found = [
        Job(setting.dataset, named(kind, bound), log, seed, way, given, setting.weight(size))
        for log in _logs(setting.dataset, size)
        for seed in _seeds(setting.dataset, kind, size)
    ]
    if kind != RAW:
        return found
    return [replace(job, together=raw_together, group=f"{job.series} {job.x}", code=()) for job in found]


def _others(size: Size) -> list[Job]:
    """Noise that the paper's text and its algorithm 3 speak of: to see that it does not fit."""
    bound = _BOUNDS["MNIST"][0]
    given = {**MNIST.settings(size), "bound": bound, "noise_helpers": _HELPERS}
    return [
        Job("MNIST", named(kind, bound), _OTHER_LOG, seed, way, given, longer * MNIST.weight(size))
        for kind, way, longer in ((BY_BOUND, by_bound, 1), (BY_RECORD, by_record, 2))
        for seed in size.seeds
    ]


def _accounted(setting: Setting, bound: float, size: Size) -> list[Job]:
    return [
        _private(setting, named(TRUE, bound), epsilon, seed, accounted, _given(setting, bound, size), size)
        for epsilon in size.pick(_EPSILONS[1:2], _EPSILONS, _EVERY_EPSILON)
        for seed in _seeds(setting.dataset, TRUE, size)
    ]


def _over_http(size: Size) -> Job:
    bound = _BOUNDS["WBCD"][-1]
    given = _given(WBCD, bound, size) | {"epochs": size.pick(2, WBCD.epochs, WBCD.epochs)}
    job = _private(WBCD, named(HTTP, bound), _EPSILONS[1], 0, http, given, size)
    return replace(job, weight=size.pick(15.0, 30.0, 30.0), alone=True)


def _given(setting: Setting, bound: float, size: Size) -> dict[str, Value]:
    return {**setting.settings(size), "bound": bound, "delta": DELTA, "helpers": _HELPERS}


def _private(
    setting: Setting,
    series: str,
    epsilon: float,
    seed: int,
    way: Callable[[Job], Found],
    given: Mapping[str, Value],
    size: Size,
) -> Job:
    """A job that needs to know its noise first."""
    job = Job(setting.dataset, series, epsilon, seed, way, given, setting.weight(size))
    return replace(job, needs=needs(job))


def needs(job: Job) -> Needed:
    """What the whole training costs."""
    own = settings.run(job)
    return costs.needs(int(job.settings["rows"]), own.batch, own.steps, job.x)


# What a job does.


def authors_noise(job: Job) -> Laplace:
    """What fits the authors' points: each of two helpers' on the sum of a batch, whatever the bound."""
    return Laplace(10.0**-job.x, helpers=int(job.settings["noise_helpers"]))


def as_run(job: Job) -> Found:
    """On bytes, by the exact engine."""
    return _trained(job, authors_noise(job))


def by_bound(job: Job) -> Found:
    """The same with ψ/ε, as the text has it."""
    noise = authors_noise(job)
    return _trained(job, noise._replace(scale=noise.scale * float(job.settings["bound"])))


def by_record(job: Job) -> Found:
    """The same with noise on every record, as algorithm 3 has it; of less scale than its ψ/ε."""
    return _trained(job, authors_noise(job)._replace(records=int(job.settings["batch"])))


def _trained(job: Job, noise: Laplace) -> Found:
    data, own = settings.data(job), settings.run(job)
    model = memory.train(data, replace(own, shuffled=True, laplace=noise))
    return {"y": memory.accuracy(model, data)}


def raw(job: Job) -> Found:
    """On features in their units of measurement, in plain floats: bytes cannot hold them."""
    (found,) = raw_together([job])
    return found


def raw_together(jobs: Sequence[Job]) -> list[Found]:
    """The same for all seeds of a point: together they take as long as a few of them would."""
    values, labels = wbcd.raw()
    x, end = values.astype(np.float32), wbcd.TRAINED
    runs = [replace(settings.run(job), laplace=authors_noise(job)) for job in jobs]
    models = floats.side_by_side(x[:end], labels[:end], runs)
    return [{"y": floats.accuracy(model, x[end:], labels[end:])} for model in models]


def accounted(job: Job) -> Found:
    """With Gaussian noise of two helpers, such that the whole training costs this ε."""
    data, cost = settings.data(job), job.needed()
    own = replace(settings.run(job), noise=cost["noise"], helpers=int(job.settings["helpers"]))
    return {"y": memory.accuracy(memory.train(data, own), data), **cost}


def http(job: Job) -> Found:
    """The same through real processes."""
    cost = job.needed()
    own = replace(settings.run(job), noise=cost["noise"])
    return {**over_http.both(settings.data(job), own, DELTA).found(), **cost}
