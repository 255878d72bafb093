"""One training or release through real processes over HTTP, and the same in memory with the helpers' seeds.

In life nobody holds what is read here: the seeds of two helpers, and both of their shares. Run by figures, to
show that what they compute in memory is what services answer.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from benches.training import DATASET, TAG, declared, send
from experiments import memory
from experiments.data import Split
from experiments.memory import Run, Seeds
from maskedlark.adserver.client import Client as AdServerClient
from maskedlark.adserver.combining import Answered
from maskedlark.audit import colluding
from maskedlark.audit.colluding import shared_seed
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.training.client import Client
from maskedlark.training.training import Training
from maskedlark.workflow import Workflow

_MOST = 99.0
"""ε that a source may cost: helpers of a cluster accept 100, with what randomised labels cost on top."""

Score = Callable[[nn.Module, Split], float]


class Released(Protocol):
    """A model from one release."""

    answered_: Answered


Fitted = TypeVar("Fitted", bound=Released)


@dataclass(frozen=True)
class Both:
    """The same training twice."""

    http: float
    """The score of what was trained over HTTP, on the rows to test with."""
    memory: float
    """And of its twin in memory."""
    differing: int
    """Of how many weights the two runs have other bits."""
    weights: int

    def found(self) -> Mapping[str, float]:
        """As a job returns it."""
        return {
            "y": self.http,
            "in_memory": self.memory,
            "differing_weights": self.differing,
            "weights": self.weights,
        }


def both(data: Split, run: Run, delta: float = 1e-5, score: Score = memory.accuracy) -> Both:
    """Poisson batches and Gaussian noise, or none where the run's labels are randomised in browsers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), settings(run), SystemRandomness()) as made,
        made.client() as client,
    ):
        send(made, client, data.features, data.labels)
        sample = memory.sample(data, run)
        training = _train(client, data, run, delta, sample)
        twin = memory.train(as_held(data, _held(made, training)), run, _seeds(made, training), sample)
    http, own = memory.flat(training.model), memory.flat(twin)
    differing = int((http.view(np.uint32) != own.view(np.uint32)).sum())
    return Both(score(training.model, data), score(twin, data), differing, len(own))


def released(data: Split, document: str, fit: Callable[[AdServerClient], Fitted]) -> tuple[Fitted, Fitted]:
    """A model from one release of services, and from the same of what the helpers held, in memory."""
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), document, SystemRandomness()) as made,
        made.client() as client,
    ):
        send(made, client, data.features, data.labels, makers=2)
        served = fit(client)
        with _twin(made, served.answered_) as twin:
            return served, fit(twin)


def _twin(made: LocalCluster, answered: Answered) -> Workflow:
    """Helpers in memory with the records of those that run, and the noise of this answer."""
    document, (receipt, *_) = answered.document, answered.receipts.values()
    (digest,) = receipt.datasets
    seeds = [colluding.release_seed(each.folder, answered.receipts[each.name]) for each in made.helpers]
    keys, noise = [each.identity for each in made.helpers], [_Repeats(seed) for seed in seeds]
    twin = Workflow(document, keys, SystemClock(), SystemRandomness(), noise=noise)
    held = [{TAG: colluding.records(each.folder, document, digest, TAG)} for each in made.helpers]
    seed = shared_seed(made.helpers[0].folder, document, digest)
    twin.hold(DATASET, Purpose.TRAIN, held, bytes.fromhex(digest), seed)
    return twin


class _Repeats(Randomness):
    """The same seed whenever a helper draws one."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def bytes(self, count: int) -> bytes:
        return (self._seed * (count // len(self._seed) + 1))[:count]


def settings(run: Run) -> str:
    """A document's, for this training."""
    if run.local is None:
        return declared(run.sizes, run.clip.psi, most=_MOST)
    local = (
        f"feature_noise = {{epsilon = {run.local.feature}, sensitivity = {run.local.sensitivity}}}\n"
        f"randomised_response = {{epsilon = {run.local.label}}}"
    )
    return declared(run.sizes, run.clip.psi, local, _MOST - run.local.label)


def _train(client: Client, data: Split, run: Run, delta: float, sample: NDArray[np.uint8]) -> Training:
    """The user's loop."""
    training: Training = client.training(
        run.model(),
        loss=run.loss,
        tag=TAG,
        sampling_rate=run.batch / len(data.features),
        steps=run.steps,
        noise=run.noise,
        delta=None if run.noise is None else delta,
        sample=sample,
        fraction=run.clip.fraction,
        depth=run.clip.depth,
    )
    training.console = Console(quiet=True)
    optimiser = torch.optim.SGD(training.model.parameters(), lr=run.rate, momentum=run.momentum)
    with training:
        for step in training:
            optimiser.zero_grad()
            step.backward()
            optimiser.step()
            memory.keep_in_reach(training.model)
    return training


# What only all helpers together hold.


def _held(made: LocalCluster, training: Training) -> list[TrainingRecords]:
    request: Any = training.sums
    (dataset,) = request.request.datasets
    return [colluding.records(each.folder, made.document, dataset, TAG) for each in made.helpers]


def as_held(data: Split, held: Sequence[TrainingRecords]) -> Split:
    """The records in the helpers' order, with the labels that their shares add up to."""
    masks = sharing.combine([each.shares for each in held])
    labels = np.broadcast_to(held[0].candidates[0], masks.shape)[masks == 1]
    return data._replace(features=held[0].features, labels=labels)


def _seeds(made: LocalCluster, training: Training) -> Seeds:
    request: Any = training.sums
    (dataset,) = request.request.datasets
    (opened, *_) = training.receipts.values()
    return Seeds(
        shared_seed(made.helpers[0].folder, made.document, dataset),
        [colluding.session_seed(each.folder, made.document, opened) for each in made.helpers],
        opened.slots[0],
    )
