"""A small model to train, with helpers in memory; and an optimiser that torch has not."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from maskedlark.clock import FixedClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, Randomness
from maskedlark.training.begin import begin
from maskedlark.training.evaluating import Evaluated, evaluation_query
from maskedlark.training.training import Training
from maskedlark.workflow import Workflow
from tests.unit.ledger.ledgers import NOW
from tests.unit.parameters.cases import HELPER_KEYS, make

RECORDS, FEATURES = 300, 6
TAG = "visits"
HIGH = {"epsilon": 9000.0, "delta": 1e-3}


def document(helpers: int = 2, **changes: Any) -> Document:
    """Ceilings are high: tests about them give their own."""
    named = [
        {"name": f"helper-{i}", "identity": key.verifying.public.hex()}
        for i, key in enumerate(HELPER_KEYS[:helpers])
    ]
    models = [
        {
            "tag": TAG,
            "columns": [{"kind": "bytes", "count": FEATURES}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 1.0,
        },
        {
            "tag": "kinds",
            "columns": [{"kind": "bytes", "count": FEATURES}],
            "labels": [{"kind": "categorical", "value": "purchase", "classes": 3}],
            "gradient_bound": 1.0,
        },
        {
            "tag": "two",
            "columns": [{"kind": "bytes", "count": FEATURES}],
            "labels": [{"kind": "binary"}, {"kind": "binary", "value": "purchase"}],
            "gradient_bound": 1.0,
        },
    ]
    settings = {
        "helpers": named,
        "k": 20,
        "budget": HIGH,
        "training": {"adserver": HIGH, "coalition": HIGH},
        "mechanisms": {
            "sums": {"kind": "laplace", "noise_floor": 1.0},
            "gradient": {"kind": "gaussian", "noise_floor": 0.01},
            "cells": {"kind": "gaussian", "noise_floor": 0.01},
        },
        "models": models,
        "decoys": [],
        "fake_rate": 0.0,
    }
    return make(**{**settings, **changes})


def table(records: int = RECORDS, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features, and labels that follow from them but for chance."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (records, FEATURES), dtype=np.uint8)
    z = (x / 256 - 0.5) @ rng.normal(0, 1, FEATURES) * 8
    return x, (rng.random(records) < 1 / (1 + np.exp(-z))).astype(int)


class Repeats(Randomness):
    """The same seed again and again: a helper whose noise is known beforehand."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def bytes(self, count: int) -> bytes:
        return (self._seed * (count // len(self._seed) + 1))[:count]


def noise_seed(place: int) -> bytes:
    """What stands in a helper's ledger for the noise of every session."""
    return hashlib.sha256(b"noise %d" % place).digest()


def in_memory(document: Document, tag: str, features: np.ndarray, labels: Sequence[np.ndarray]) -> Workflow:
    """One dataset of labels that nobody of these helpers knows, its records in their order."""
    rng, keys = FixedRandomness(b"reports"), HELPER_KEYS[: len(document.helpers)]
    noise = [Repeats(noise_seed(place)) for place in range(len(keys))]
    way = Workflow(document, keys, FixedClock(NOW), rng, noise=noise)
    shown, secrets = document.declared_models[tag].mask(labels, np.ones(len(features), np.bool_), rng)
    ids = sharing.random_rows(len(features), sharing.ID_BYTES, rng)
    carried = sharing.split(secrets, ids, Purpose.TRAIN, len(keys), rng).carried()
    shares = [
        sharing.recover(own, ids, Purpose.TRAIN, place, secrets.shape[1]) for place, own in enumerate(carried)
    ]
    candidates = tuple(np.asarray(each, np.int64) for each in shown)
    way.hold(
        "visits", Purpose.TRAIN, [{tag: TrainingRecords(ids, features, candidates, own)} for own in shares]
    )
    return way


def home(document: Document, tag: str = TAG, records: int = RECORDS) -> Workflow:
    """Records of the table."""
    x, y = table(records)
    return in_memory(document, tag, x, [y] * len(document.declared_models[tag].labels))


def model(outputs: int = 1, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, outputs))


def run(home: Any, net: nn.Module, **options: Any) -> Training:
    settings = {"loss": "bce", "tag": TAG, "steps": 6, "noise": 0.5, "delta": 1e-5, "batches": 2}
    if {"sampling_rate", "sampling"} & options.keys():
        del settings["batches"]
    if "epsilon" in options:
        del settings["noise"]
    return begin(home, net, **{**settings, **options})


def flat(net: nn.Module) -> np.ndarray:
    """All weights, bit by bit."""
    return np.concatenate([each.detach().numpy().ravel() for each in net.parameters()]).view(np.uint32)


def gradient(net: nn.Module) -> np.ndarray:
    """What stands in every `param.grad`, flat."""
    found = [each.grad for each in net.parameters() if each.grad is not None]
    return np.concatenate([each.numpy().ravel() for each in found])


class AdaBound(torch.optim.Optimizer):
    """Adam whose step is kept between bounds that close in on that of SGD (Luo et al., 2019)."""

    def __init__(
        self, params: Iterator[nn.Parameter], lr: float = 1e-2, final: float = 1.0, gamma: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "final": final, "gamma": gamma})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(each), square=torch.zeros_like(each))
                state["step"] += 1
                state["mean"].mul_(0.9).add_(each.grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(each.grad, each.grad, value=0.001)
                low = group["final"] * (1 - 1 / (group["gamma"] * state["step"] + 1))
                high = group["final"] * (1 + 1 / (group["gamma"] * state["step"]))
                rate = (group["lr"] / (state["square"].sqrt() + 1e-8)).clamp(low, high)
                each.sub_(rate * state["mean"])


OPTIMISERS = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.2),
    "AdaBound": AdaBound,
}


def fit(training: Training, *steppers: Any) -> Training:
    """The loop of a user: an optimiser, and perhaps a scheduler."""
    for step in training.keep(*steppers):
        steppers[0].zero_grad()
        step.backward()
        for each in steppers:
            each.step()
    return training


def evaluate(client: Any, model: Any, table: Any = None, **options: Any) -> Evaluated:
    """As `client.evaluate`, also of a client without one."""
    return evaluation_query(client, model, table, **options).ask()
