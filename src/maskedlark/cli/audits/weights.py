"""Can crafted weights read labels? They fire on one record alone, at real helpers (section 4.2.3).

Against a sum without noise the same weights read every label, so the attack is not blind.
"""

import numpy as np
from numpy.typing import NDArray

from maskedlark.audit import crafted_weights
from maskedlark.audit.attacks import Advantage, advantage
from maskedlark.audit.canaries import max_advantage
from maskedlark.audit.crafted_weights import Crafted
from maskedlark.cli.audits.auditor import DELTA, SETTINGS, TAG, audited
from maskedlark.cli.audits.findings import DEVIATIONS, Finding
from maskedlark.cli.audits.training import clipping, run_session
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.dp.calibration import noise_for_session
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.gradient import lift
from maskedlark.functions import weights as encoding
from maskedlark.functions.gradient import GradientSteps
from maskedlark.randomness import Randomness
from maskedlark.workflow import Workflow

FEATURES = 64
HELPERS = 2
Bytes = NDArray[np.uint8]


def run(records: int, targets: int, epsilon: float, steps: int, rng: Randomness) -> list[Finding]:
    """The advantage of reading labels from crafted sums, against what ε allows anyone."""
    rows = np.frombuffer(rng.bytes(records * FEATURES), np.uint8).reshape(records, FEATURES)
    labels = rng.below(2, records)
    crafted = crafted_weights.craft(rows, np.arange(targets))
    noise = noise_for_session("gaussian", 1.0, steps, DELTA, epsilon, epsilon)
    settings = SETTINGS.format(features=FEATURES, bound=1.0)
    make = lambda crowd: crowd.train(TAG, rows, [labels])  # noqa: E731
    with audited(settings, Purpose.TRAIN, make, rng) as (cluster, client):
        asked = GradientSteps(TAG, crafted.network, clipping(cluster.document))
        ran = run_session(client, asked, crafted.weights, Sampling(kind="whole"), steps, noise)
    bare = _read(crafted, _noiseless(crafted, asked, rows, labels, rng), labels)
    noisy = _read(crafted, ran.sums.sum(axis=0), labels)
    control, attack = f"weights that fire on {targets} records", f"the same, {steps} steps of ε = {epsilon:g}"
    chance = DEVIATIONS * noisy.error
    allowed = max_advantage(noise, 1.0, steps) + chance
    return [
        Finding(control, "against a sum without noise", bare.value, None, 0.9),
        # May be negative by chance: the control shows that the attack is not blind.
        Finding(attack, "the ad server", noisy.value, allowed, -chance),
    ]


def _read(crafted: Crafted, gradient: NDArray[np.float64], labels: NDArray[np.int64]) -> Advantage:
    scores, alone = crafted.scores(gradient), crafted.alone
    truth = labels[: len(scores)] == 1
    return advantage((scores > 0)[alone], truth[alone])


def _noiseless(
    crafted: Crafted, asked: GradientSteps, rows: Bytes, labels: NDArray[np.int64], rng: Randomness
) -> NDArray[np.float64]:
    """The same sum without noise, computed in memory: real helpers always add it."""
    settings = SETTINGS.format(features=FEATURES, bound=asked.clipping.psi)
    with Workflow.declared(settings, HELPERS, SystemClock(), rng) as way:
        way.make_training_dataset(TAG, TAG, rows, [labels])
        views = way.views[TAG]
    query = asked.at(encoding.encode(crafted.weights), b"")
    shares = [query.share([view.records[TAG]], 1)[0].shares[0][0] for view in views]
    return lift(crafted.network, crafted.weights, asked.clipping, sharing.combine(shares))
