"""What training needs beside services: labelled reports, a dataset of them, a look into helpers' files."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sqlalchemy import text
from torch import nn

from maskedlark.adserver.client import Client
from maskedlark.audit import colluding
from maskedlark.audit.colluding import reading, shared_seed
from maskedlark.clock import SystemClock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import SessionRequest
from maskedlark.simulate.cluster import LocalCluster, RunningHelper
from maskedlark.training.training import Training
from maskedlark.wire import batch, columns
from maskedlark.wire.batch import Envelope
from maskedlark.workflow import Workflow
from tests.integration.waiting import next_second
from tests.unit.training.cases import Repeats

FEATURES, RECORDS = 8, 240
TAG = "visits"
SETTINGS = f"""
k = 20
budget = {{epsilon = 90.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 80.0, delta = 1e-3}}, coalition = {{epsilon = 90.0, delta = 1e-3}}}}
[[models]]
tag = "{TAG}"
columns = [{{kind = "bytes", count = {FEATURES}}}]
labels = [{{kind = "binary"}}]
gradient_bound = 1.0
[[models]]
tag = "other"
columns = [{{kind = "bytes", count = {FEATURES}}}]
labels = [{{kind = "binary"}}]
gradient_bound = 1.0
[mechanisms]
gradient = {{kind = "gaussian", noise_floor = 0.1}}
cells = {{kind = "gaussian", noise_floor = 0.1}}
"""


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (RECORDS, FEATURES), dtype=np.uint8)
    z = (x / 256 - 0.5) @ rng.normal(0, 1, FEATURES) * 8
    return x, (rng.random(RECORDS) < 1 / (1 + np.exp(-z))).astype(int)


def frozen(made: LocalCluster, client: Client, name: str) -> None:
    """A dataset of the newest document: reports of the table, handed in, selected and sent."""
    document = made.document
    x, y = table()
    own = replace(made, helpers=made.helpers[: len(document.helpers)])
    everyone = np.ones(RECORDS, np.bool_)
    envelope = Envelope(document.layout(Purpose.TRAIN), own.sealing_keys())
    hours = [hour_of(SystemClock().now())] * RECORDS
    for place, declared in enumerate(document.declared_models.values()):
        shown, hidden = declared.mask([y], everyone, made.rng)
        rows = columns.train_columns(place, declared, x, shown)
        made.upload([batch.seal(envelope, place, rows, hidden, hours, made.rng)])
    next_second()
    client.select(name, purpose=Purpose.TRAIN, parameters=document.digest)
    client.send(name)


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Dropout(0.25), nn.Linear(6, 1))


def loop(training: Training, chosen: Any = None) -> np.ndarray:
    """A user's loop: momentum and a scheduler. Returns the weights, bit by bit."""
    optimiser = torch.optim.SGD(training.model.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 3, gamma=0.5)
    for step in training.keep(optimiser, scheduler):
        optimiser.zero_grad()
        step.backward(() if chosen is None else chosen(step.number))
        optimiser.step()
        scheduler.step()
    return flat(training.model)


def flat(net: nn.Module) -> np.ndarray:
    return np.concatenate([each.detach().numpy().ravel() for each in net.parameters()]).view(np.uint32)


def twin(made: LocalCluster, document: Document, request: SessionRequest, opened: OpenedReceipt) -> Workflow:
    """The same records and seeds as helpers have them, in this process."""
    helpers = [each for each in made.helpers if each.name in {named.name for named in document.helpers}]
    seeds = [colluding.stored_session_seed(helper.folder, document, opened) for helper in helpers]
    keys = [helper.identity for helper in helpers]
    way = Workflow(document, keys, SystemClock(), SystemRandomness(), noise=[Repeats(seed) for seed in seeds])
    for digest, first in zip(request.datasets, request.slots, strict=True):
        held: list[Mapping[str | None, Records]] = [
            {request.tag: colluding.records(helper.folder, document, digest, request.tag)}
            for helper in helpers
        ]
        seed = shared_seed(helpers[0].folder, document, digest)
        way.hold(digest, Purpose.TRAIN, held, bytes.fromhex(digest), seed, first)
    return way


def taken(helper: RunningHelper, session: str) -> int:
    """How many steps of a session a helper has written down."""
    query = text("SELECT used FROM ledger_sessions WHERE request = :session")
    with reading(helper.folder) as connection:
        found: int | None = connection.scalar(query, {"session": bytes.fromhex(session)})
    return found or 0
