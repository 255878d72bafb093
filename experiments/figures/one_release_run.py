"""One point of the figure of one release: a linear model.

Everything runs through the package's own code, in memory: browsers' masks, two helpers that add their own
noise, and the ad server's client. Run by the figure.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from experiments.costs import DELTA
from experiments.data import Split, shoppers
from experiments.jobs import Found, Job
from maskedlark.clock import FixedClock
from maskedlark.randomness import FixedRandomness
from maskedlark.workflow import Workflow

TAG = "m"
NOW = 1_900_000_000
SETTINGS = """
k = 50
budget = {{epsilon = 1e4, delta = {delta}}}
training.adserver = {{epsilon = 1e4, delta = {delta}}}
training.coalition = {{epsilon = 1e4, delta = {delta}}}
mechanisms.moments = {{kind = "gaussian", noise_floor = {least}}}
models.{tag}.columns = [{{kind = "bytes", count = {features}}}]
"""
LEAST = 0.03
"""Noise that nobody sees: what clear labels would give."""


def linear(job: Job) -> Found:
    """A logistic regression from one release of moments; in the clear if ε is 0."""
    from maskedlark.fitting import LogisticRegression  # noqa: PLC0415 - slow to import

    data = shoppers.load(job.seed)
    epsilon = float(job.settings["epsilon"])
    with workflow(data, job.seed) as client:
        model = LogisticRegression(client, TAG, epsilon=epsilon or None, noise=None if epsilon else LEAST)
        probabilities = model.fit(data.features).predict_proba(data.test_features)[:, 1]
    answered = model.answered_
    return {
        "y": auc(probabilities, data.test_labels),
        "log_loss": log_loss(probabilities, data.test_labels),
        "noise": answered.noise,
        "charged": answered.balance.charged_epsilon,
    }


def workflow(data: Split, seed: int) -> Workflow:
    """Two helpers that hold the labels of a table; their noise follows from the seed."""
    settings = SETTINGS.format(delta=DELTA, least=LEAST, tag=TAG, features=data.features.shape[1])
    noise = [FixedRandomness(_seed(f"helper {place}", seed)) for place in range(2)]
    made = Workflow.declared(settings, 2, FixedClock(NOW), FixedRandomness(_seed("all", seed)), noise)
    made.make_training_dataset("rows", TAG, data.features, [data.labels], decoded=True)
    return made


def _seed(what: str, seed: int) -> bytes:
    return hashlib.sha256(f"maskedlark experiments one release {what} {seed}".encode()).digest()


def auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The chance that a record with the label scores above one without, ties counting half."""
    from scipy.stats import rankdata  # noqa: PLC0415 - slow to import

    ranks, positive = rankdata(scores), labels == 1
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(ranks) - count)))


def log_loss(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The mean negative log-probability of the true label."""
    true = np.where(labels == 1, probabilities, 1 - probabilities)
    return float(-np.log(np.maximum(true, 1e-15)).mean())
