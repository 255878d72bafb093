"""Rows whose labels follow a known model, with helpers in memory that hold the labels."""

from typing import Any

import numpy as np

from maskedlark.clock import FixedClock
from maskedlark.randomness import FixedRandomness
from maskedlark.workflow import Workflow

TAG = "visits"
FEATURES = 5
LABELS = {
    "logistic": '{kind = "binary"}',
    "softmax": '{kind = "categorical", value = "spent", classes = 3}',
    "least squares": '{kind = "reals", value = "spent", low = -10, high = 10, buckets = 20}',
    "poisson": '{kind = "integers", value = "spent", low = 0, high = 8}',
}
SETTINGS = """
k = 20
budget = {{epsilon = {epsilon}, delta = 1e-3}}
training.adserver = {{epsilon = {epsilon}, delta = 1e-4}}
training.coalition = {{epsilon = {epsilon}, delta = 1e-4}}
values.spent = [-10, 10]
mechanisms.sums = {{kind = "laplace", noise_floor = 1.0}}
mechanisms.moments = {{kind = "{kind}", noise_floor = {floor}}}
{more}
[models.visits]
columns = [{{kind = "bytes", count = 5}}]
labels = [{label}]
{model}
"""


def workflow(
    label="logistic", epsilon=100000.0, kind="gaussian", floor=0.01, helpers=2, more="", model="", seed=0
) -> Any:
    settings = SETTINGS.format(
        label=LABELS[label], epsilon=epsilon, kind=kind, floor=floor, more=more, model=model
    )
    noise = [FixedRandomness(b"helper %d %d" % (seed, place)) for place in range(helpers)]
    clock, rng = FixedClock(1_900_000_000), FixedRandomness(b"all %d" % seed)
    return Workflow.declared(settings, helpers, clock, rng, noise)


def rows(count=3000, seed=0):
    """Three numbers, a skewed one, and a flag."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 256, (count, FEATURES)).astype(np.uint8)
    numbers[:, 3] = numbers[:, 3].astype(int) ** 2 // 256
    numbers[:, 4] = 255 * (rng.random(count) < 0.3)
    return numbers


def scores(features):
    x = features / 256
    return 3 * (x[:, 0] - 0.5) + 2 * (x[:, 4] - 0.3) - 1


def labels(features, label="logistic", seed=1):
    rng, z = np.random.default_rng(seed), scores(features)
    if label == "softmax":
        drawn = np.stack([np.zeros(len(z)), z, -z], axis=1) + rng.gumbel(size=(len(z), 3))
        return drawn.argmax(axis=1)
    if label == "least squares":
        return np.clip(z + rng.normal(0, 1, len(z)), -10, 10)
    if label == "poisson":
        return np.minimum(rng.poisson(np.exp(z / 2)), 8)
    return (rng.random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)


def filled(label="logistic", count=3000, **options) -> tuple[Any, Any, Any]:
    """A client whose helpers hold the labels of rows, the rows, and the labels."""
    features = rows(count)
    truth = labels(features, label)
    way = workflow(label, **options)
    way.make_training_dataset("first", TAG, features, [truth], decoded=True)
    return way, features, truth
