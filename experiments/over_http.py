"""One training through real processes over HTTP, and the same one in memory with the helpers' own seeds.

In life nobody holds what is read here: the seeds of two helpers, and both of their shares. Run by figures, to
show that what they compute in memory is what services answer.
"""

import sqlite3
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments import memory
from experiments.data import Split
from experiments.memory import TAG, Run, Seeds
from maskedlark.adserver.client import Client
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Trained
from maskedlark.helper.columns import Contents, read_trained
from maskedlark.privacy.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.population import Population
from maskedlark.simulate.stage import RunningHelper, Stage, stage
from maskedlark.training.progress import silent
from maskedlark.training.training import Training

_DATASET = "all"
_SETTINGS = """
k = 1
values = {{digit = [0, 9]}}
budget = {{epsilon = 99.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 98.0, delta = 1e-3}}, coalition = {{epsilon = 99.0, delta = 1e-3}}}}
[[models]]
tag = "{tag}"
features = {features}
labels = [{label}]
gradient_bound = {bound}
{local}
[mechanisms]
train = {{kind = "gaussian", noise_floor = 0.01}}
aggregate = {{kind = "laplace", noise_floor = 1.0}}
"""


@dataclass(frozen=True)
class Both:
    """The same training twice."""

    http: float
    """Test accuracy of what was trained over HTTP, in percent."""
    memory: float
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


def both(data: Split, run: Run, delta: float = 1e-5) -> Both:
    """Poisson batches and Gaussian noise, or none where the run's labels are randomised in browsers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(Path(folder), _settings(run), SystemRandomness()) as made,
        made.client() as client,
    ):
        _send(made, client, data)
        training = _train(client, data, run, delta)
        twin = memory.train(_as_held(made, data, training), run, _seeds(made, training))
    http, own = memory.flat(training.model), memory.flat(twin)
    differing = int((http.view(np.uint32) != own.view(np.uint32)).sum())
    return Both(memory.accuracy(training.model, data), memory.accuracy(twin, data), differing, len(own))


def _settings(run: Run) -> str:
    binary = run.sizes[-1] == 1
    label = '{kind = "binary"}' if binary else '{kind = "categorical", classes = 10, of = "digit"}'
    local = ""
    if run.local is not None:
        local = (
            f"feature_noise = {{epsilon = {run.local.feature}, sensitivity = {run.local.sensitivity}}}\n"
            f"randomised_response = {{epsilon = {run.local.label}}}"
        )
    return _SETTINGS.format(
        tag=TAG, features=run.sizes[0], label=label, bound=float(run.clip.psi), local=local
    )


def _send(made: Stage, client: Client, data: Split) -> None:
    """As browsers and the ad server do; the helpers hold a sealed dataset afterwards."""
    document = made.document
    seen = SystemClock().now() - document.attribution_window_s - document.delay.most_s - 3600
    population = Population(document, made.recipients(), seen, SystemRandomness())
    made.upload(population.train(TAG, data.features, [data.labels]))
    time.sleep(1.1)  # A dataset ends with a whole second.
    client.freeze(_DATASET, purpose=Purpose.TRAIN)
    client.send(_DATASET)


def _train(client: Client, data: Split, run: Run, delta: float) -> Training:
    """The user's loop."""
    training: Training = client.training(
        run.model(),
        loss=run.loss,
        tag=TAG,
        sampling_rate=run.batch / len(data.features),
        steps=run.steps,
        noise=run.noise,
        delta=None if run.noise is None else delta,
        sample=memory.sample(data, run),
        fraction=run.clip.fraction,
        depth=run.clip.depth,
    )
    training.shown = silent
    optimiser = torch.optim.SGD(training.model.parameters(), lr=run.rate, momentum=run.momentum)
    with training:
        for step in training:
            optimiser.zero_grad()
            step.backward()
            optimiser.step()
            memory.keep_in_reach(training.model)
    return training


# What only all helpers together hold.


def _as_held(made: Stage, data: Split, training: Training) -> Split:
    """The records in the helpers' order, with the labels that their shares add up to."""
    request: Any = training.sums
    digest = bytes.fromhex(request.request.datasets[0])
    held = [_records(helper, made.document, digest) for helper in made.helpers]
    masks = sharing.combine([each.shares for each in held])
    labels = np.broadcast_to(held[0].candidates[0], masks.shape)[masks == 1]
    return data._replace(features=held[0].features, labels=labels)


def _seeds(made: Stage, training: Training) -> Seeds:
    request: Any = training.sums
    digest, session = bytes.fromhex(request.request.datasets[0]), bytes.fromhex(request.request.id)
    (opened, *_) = training.receipts.values()
    return Seeds(
        _one(made.helpers[0], "SELECT seed FROM batch_seeds WHERE dataset = ?", digest),
        [_one(each, "SELECT seed FROM ledger_sessions WHERE request = ?", session) for each in made.helpers],
        opened.slots[0],
    )


def _records(helper: RunningHelper, document: Document, digest: bytes) -> Trained:
    number, folder, contents = (
        _one(helper, f"SELECT {column} FROM datasets WHERE digest = ?", digest)
        for column in ("number", "folder", "contents")
    )
    path: Path = helper.folder / "columns" / str(number) / folder
    return read_trained(path, Contents.model_validate_json(contents), document.declared_models, TAG)


def _one(helper: RunningHelper, query: str, argument: bytes) -> Any:  # noqa: ANN401 - whatever a column holds
    connection = sqlite3.connect(helper.folder / "database" / "helper.sqlite")
    try:
        [(found,)] = connection.execute(query, (argument,))
    finally:
        connection.close()
    return found
