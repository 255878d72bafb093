"""A real training run over canaries: helper processes, HTTP, a PyTorch loop whose weights move.

What the ad server sees is `param.grad`. What a colluding helper adds is read from its own files: the seeds of
its noise and of the batches, and in which order its records lie.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from maskedlark.audit import training_canaries as canaries
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.functions import weights
from maskedlark.functions.gradient import GradientQuestion, GradientSteps
from maskedlark.helper.seeds import SEEDS
from maskedlark.privacy import mechanisms, parts, sessions, slots
from maskedlark.privacy.course import Course
from maskedlark.privacy.steps import body_digest
from maskedlark.simulate.population import Population
from maskedlark.simulate.stage import RunningHelper, Stage
from maskedlark.storage.engine import open_database
from maskedlark.training.training import Training
from tests.integration.waiting import next_second

TAG = "canaries"
SETTINGS = """
k = 20
budget = {{epsilon = 100.0, delta = 1e-3}}
training = {{adserver = {{epsilon = 100.0, delta = 1e-3}}, coalition = {{epsilon = 100.0, delta = 1e-3}}}}
[[models]]
tag = "canaries"
features = {features}
labels = [{{kind = "binary"}}]
gradient_bound = {bound}
[mechanisms.train]
kind = "gaussian"
noise_floor = 0.1
"""
_UPLOAD = 200
"""Reports at a time: each is as long as all canaries' features."""


@dataclass(frozen=True)
class Seen:
    """A finished run: what the ad server saw, and what helper 1 has to tell it. Columns are canaries."""

    sums: np.ndarray
    noise_of_helper_1: np.ndarray
    drawn: np.ndarray
    course: Course


def hand_in(made: Stage, coins: np.ndarray, pool: Executor) -> None:
    """One report a canary, sealed at all helpers."""
    document, rng = made.document, made.rng
    seen = SystemClock().now() - document.attribution_window_s - document.delay.most_s - 3600
    population = Population(document, made.recipients(), seen, rng, pool)
    reports = population.train(TAG, canaries.features(len(coins)), [coins.astype(np.int64)])
    made.upload(_small(reports))
    with made.client() as client:
        client.freeze("canaries", 0, next_second(), Purpose.TRAIN)
        client.send("canaries")


def _small(chunks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    for chunk in chunks:
        for start in range(0, len(chunk), _UPLOAD):
            yield chunk[start : start + _UPLOAD]


def train(made: Stage, count: int, rate: float, steps: int, noise: float, delta: float) -> Seen:
    """A run of logistic regression, and what became known of it. Sums in units of the sensitivity."""
    linear = torch.nn.Linear(count, 1, bias=False)
    torch.nn.init.zeros_(linear.weight)
    model = torch.nn.Sequential(linear)
    # The smaller the batch, the larger the noise of its mean: weights go equally far.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * rate * count, momentum=0.9)
    sums, bodies = [], []
    with (
        made.client() as client,
        client.training(
            model, loss="bce", tag=TAG, sampling_rate=rate, steps=steps, noise=noise, delta=delta
        ) as training,
    ):
        for step in training:
            bodies.append(weights.encode(training.quantised()))
            optimizer.zero_grad()
            step.backward()
            assert linear.weight.grad is not None
            sums.append(linear.weight.grad.double().numpy()[0] * training.plan().batch)
            optimizer.step()
        assert 0.05 < float(linear.weight.detach().abs().max()) < 2, "weights move, and rows stay clipped"
        # Label 1 moves a gradient down.
        found, scale = -np.array(sums), 2 * training.clip.psi
        told, drawn = _told(training, made.helpers[1], made.origin, bodies)
        course = training.receipts["helper-1"].course.course()
        return Seen(found / scale, -told / scale, drawn, course)


def _told(
    training: Training, helper: RunningHelper, origin: str, bodies: list[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """The noise of a helper in every step, and which canaries were in it, from what it has on disk."""
    opened = training.receipts[helper.name]
    database = open_database(f"sqlite:///{helper.folder / 'database' / 'helper.sqlite'}")
    with database.read() as connection:
        session = slots.find(connection, origin, bytes.fromhex(opened.request)).seed
        batch_seed = bytes(connection.execute(SEEDS.select()).one().seed)
    database.close()
    order, noises, drawn = _order(helper.folder, training.network.size), [], []
    steps = GradientSteps(TAG, training.network, training.clip)
    for number, body in enumerate(bodies):
        seed = sessions.noise_seed(session, number, body_digest(body, ()))
        noises.append(_noise(steps, body, training.planned.noise, seed))
        rows = parts.batch(opened.sampling, batch_seed, TAG, opened.slots[0], number, len(order))
        drawn.append(np.isin(np.arange(len(order)), order[rows]))
    return np.array(noises), np.array(drawn)


def _noise(steps: GradientSteps, body: bytes, noise: float | None, seed: bytes) -> np.ndarray:
    assert noise is not None
    question = steps.at(body, b"")
    assert isinstance(question, GradientQuestion)
    (column,) = question.columns
    drawn = mechanisms.draw("gaussian", noise, column.sensitivity, seed, question.network.size)
    return drawn * 2.0**-question.step.exponent


def _order(folder: Path, count: int) -> np.ndarray:
    """The canaries as they lie in the helper's columns."""
    (path,) = folder.glob("**/0-features")
    places: np.ndarray = np.fromfile(path, np.uint8).reshape(-1, count).argmax(axis=1)
    return places
