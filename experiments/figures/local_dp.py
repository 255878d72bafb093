"""Accuracy against noise on features (section 5.4 of the paper): what it protects is said with it.

Noise goes on every feature, before anything leaves the browser, and none on gradients. That hides one
feature's value, at an ε that follows from its scale and range; all d features of a record together at d times
that, by composition; and it hides no label.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from experiments import authors, floats, memory, over_http, settings, versions
from experiments.data import Split, wbcd
from experiments.figures.local_dp_told import AS_RUN, AUTHORS, HTTP, OURS, draw, text
from experiments.jobs import Found, Job, Value
from experiments.memory import Local
from experiments.settings import MNIST_LOCAL, MNIST_SLOW, WBCD, WBCD_LOCAL, Setting
from experiments.size import Size
from maskedlark.core import local_dp
from maskedlark.core.local_dp import FeatureNoise
from maskedlark.randomness import FixedRandomness

NAME = "local_dp"
TITLE = "Accuracy against noise on features"

__all__ = ["NAME", "TITLE", "draw", "jobs", "text"]

_BOUND = {"MNIST": 10.0, "WBCD": 48.0}
"""Gradients are still clipped, though nothing is added to them."""
_SCALE = {"MNIST": 1 / math.sqrt(2), "WBCD": 1.0}
"""The scale of the noise that fits their points, times ε, in a feature's unit: a whole pixel, a deviation."""
_UNIT = {"MNIST": 255.0, "WBCD": float(wbcd.DEVIATION)}
"""That unit in bytes."""
_LABEL = 4.0
"""ε of the labels' randomised response, over HTTP: without it helpers refuse sums without noise."""
_ROOM = {"bound": 2.0, "fraction": 8}
"""Over HTTP: unbiased masks are 2^16 times as large, and this leaves them room in the field."""
_FRACTION = 20
"""Nothing is added to gradients here, so that there is room for it."""
_LOGS = {
    "MNIST": (-1.001, -0.657, -0.242, 0.03, 0.377, 1.0),
    "WBCD": (-1.981, -1.268, -1.063, -0.86, -0.656, -0.452, -0.044, 0.466, 1.998),
}
_SERVED = 1000
"""The seed of noise on the rows to test with: none of the runs' own."""
_WAYS = ((MNIST_SLOW, AS_RUN), (MNIST_LOCAL, OURS), (WBCD_LOCAL, AS_RUN), (WBCD, OURS))


def jobs(size: Size) -> list[Job]:
    """Both ways on both datasets, and one point over HTTP."""
    found = [
        Job(
            setting.dataset,
            series,
            log,
            seed,
            way,
            _given(setting, series, size),
            setting.weight(size),
            code=() if series == AS_RUN else versions.ALL,
        )
        for setting, series in _WAYS
        for way in (as_run if series == AS_RUN else ours,)
        for log in _logs(setting.dataset, size)
        for seed in _seeds(setting.dataset, series, size)
    ]
    given = {**_given(WBCD, OURS, size), **_ROOM, "label_epsilon": _LABEL}
    given["epochs"] = size.pick(2, WBCD.epochs, WBCD.epochs)
    weight = size.pick(15.0, 30.0, 30.0)
    return [*found, Job("WBCD", HTTP, _LOGS["WBCD"][-2], 0, http, given, weight, alone=True)]


def _given(setting: Setting, series: str, size: Size) -> dict[str, Value]:
    own = {**setting.settings(size), "bound": _BOUND[setting.dataset], "fraction": _FRACTION}
    own["noise_scale"] = _SCALE[setting.dataset]
    return own if series == AS_RUN else {**own, "unit_bytes": _UNIT[setting.dataset]}


def _logs(dataset: str, size: Size) -> Sequence[float]:
    every = sorted({point.x for point in authors.points(AUTHORS, dataset)})
    return size.pick(_LOGS[dataset][3:4], _LOGS[dataset], every)


_SEEDS = {AS_RUN: (3, 30, 30), OURS: (3, 10, 10)}
"""Of a point of WBCD, by size: it has 69 rows to test with, so that single runs are chance."""


def _seeds(dataset: str, series: str, size: Size) -> range:
    return size.seeds if dataset == "MNIST" else range(size.pick(*_SEEDS[series]))


# What a job does.


def as_run(job: Job) -> Found:
    """Noise without bounds on features as the authors had them, drawn once per record; in plain floats."""
    x, labels, tested, truth = _as_the_authors(job)
    rng = np.random.default_rng([job.seed, 3])
    noisy = x + rng.laplace(0.0, 10.0**-job.x * float(job.settings["noise_scale"]), x.shape).astype(
        np.float32
    )
    model = floats.train(noisy, labels, settings.run(job))
    return {"y": floats.accuracy(model, tested, truth)}


def _as_the_authors(job: Job) -> tuple[floats.Floats, floats.Labels, floats.Floats, floats.Labels]:
    """MNIST's pixels in [0, 1]; WBCD in standard deviations."""
    if job.dataset == "WBCD":
        x, (_, labels), end = wbcd.standardised().astype(np.float32), wbcd.raw(), wbcd.TRAINED
        return x[:end], labels[:end], x[end:], labels[end:]
    data = settings.data(job)
    return _shares(data.features), data.labels, _shares(data.test_features), data.test_labels


def _shares(features: NDArray[np.uint8]) -> floats.Floats:
    return np.divide(features, 255, dtype=np.float32)


def ours(job: Job) -> Found:
    """Rounded and clipped to a byte, as `core.local_dp` does it in browsers; by the exact engine."""
    noise = FeatureNoise(10.0**job.x / float(job.settings["noise_scale"]), float(job.settings["unit_bytes"]))
    data = noised(_bytes(job), noise, job.seed)
    seen = noised(data._replace(features=data.test_features), noise, _SERVED).features
    model = memory.train(data, replace(settings.run(job), shuffled=True))
    promised = local_dp.guarantee(data.features.shape[1], noise)
    return {
        "y": memory.accuracy(model, data),
        "with_noise_at_serving": memory.accuracy(model, data._replace(test_features=seen)),
        "feature_epsilon": noise.any_change,
        "total_epsilon": promised.any_features,
    }


def _bytes(job: Job) -> Split:
    return wbcd.in_deviations() if job.dataset == "WBCD" else settings.data(job)


def noised(data: Split, noise: FeatureNoise, seed: int) -> Split:
    """What browsers send."""
    rng = FixedRandomness(f"maskedlark experiments features {seed}".encode())
    return data._replace(features=local_dp.features(data.features, noise, rng))


def http(job: Job) -> Found:
    """Labels randomised as well, so that helpers may answer without noise; through real processes."""
    noise = FeatureNoise(10.0**job.x / float(job.settings["noise_scale"]), float(job.settings["unit_bytes"]))
    local = Local(noise.epsilon, float(job.settings["label_epsilon"]), noise.sensitivity)
    own = replace(settings.run(job), local=local)
    return {**over_http.both(_bytes(job), own).found(), "feature_epsilon": noise.any_change}
