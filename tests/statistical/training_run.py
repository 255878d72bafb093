"""A real training run over canaries: helper processes, HTTP, a PyTorch loop whose weights move.

What the ad server sees is `param.grad`. What a colluding helper adds is read from its own files: its noise,
and which canaries were in each batch.
"""

from dataclasses import dataclass

import numpy as np
import torch

from maskedlark.audit import canaries, colluding
from maskedlark.cli.audits import auditor
from maskedlark.cli.audits.auditor import TAG
from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.functions import weights
from maskedlark.functions.gradient import GradientSteps
from maskedlark.simulate.cluster import LocalCluster, RunningHelper
from maskedlark.training.training import Training


@dataclass(frozen=True)
class Seen:
    """A finished run: what the ad server saw, and what helper 1 has to tell it. Columns are canaries."""

    sums: np.ndarray
    noise_of_helper_1: np.ndarray
    drawn: np.ndarray
    charge: SessionCharge


def hand_in(made: LocalCluster, coins: np.ndarray) -> None:
    """One report a canary, frozen at all helpers."""
    rows, labels = canaries.features(len(coins)), [coins.astype(np.int64)]
    with auditor.frozen(made, Purpose.TRAIN, lambda crowd: crowd.train(TAG, rows, labels)):
        pass


def train(made: LocalCluster, count: int, rate: float, steps: int, noise: float, delta: float) -> Seen:
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
        told, drawn = _told(training, made, made.helpers[1], bodies)
        reserved = training.receipts["helper-1"].session_charge
        assert reserved is not None
        return Seen(found / scale, -told / scale, drawn, reserved)


def _told(
    training: Training, made: LocalCluster, helper: RunningHelper, bodies: list[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """The noise of a helper in every step, and which canaries were in it, from what it has on disk."""
    opened = training.receipts[helper.name]
    asked = GradientSteps(TAG, training.network, training.clip)
    noise = colluding.step_noise(helper.folder, made.document, opened, asked, bodies)
    held = colluding.records(helper.folder, made.document, opened.datasets[0], TAG)
    # A canary is where its feature is, and not where its record lies.
    batches = colluding.batches(helper.folder, made.document, opened, TAG, len(bodies), len(held))
    return noise, batches[:, np.argsort(held.features.argmax(axis=1))]
