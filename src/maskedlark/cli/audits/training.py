"""What does a training run give away? Canary labels at real helpers bound both of its figures from below.

Each canary has a feature of its own, so that a run over n of them is n trials. The ad server guesses their
labels: alone, without knowing the batches; and with all helpers but one, who know them and tell their noise.
"""

import tempfile
from pathlib import Path

import numpy as np

from maskedlark.audit import colluding_sessions as colluding
from maskedlark.audit import training_canaries as canaries
from maskedlark.cli.audits.asking import DELTA, Ran, ask, clipping
from maskedlark.cli.audits.finding import CONFIDENCE, Finding
from maskedlark.cli.audits.planting import SETTINGS, TAG, sealed
from maskedlark.core.purpose import Purpose
from maskedlark.exact.clip import Clip
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.gradient import GradientSteps
from maskedlark.privacy.course import adserver_epsilon, coalition_epsilon
from maskedlark.privacy.sampling import Sampling
from maskedlark.randomness import Randomness
from maskedlark.simulate.stage import Stage, stage

BOUND = 0.05
"""ψ: a canary's gradient is clipped to it, whatever its label."""


def run(count: int, rate: float, steps: int, noise: float, rng: Randomness) -> list[Finding]:
    """Lower bounds on the ε of one run, beside the two figures that it is accounted at."""
    coins = rng.below(2, count) == 1
    network = Network((Layer(Linear("w0", None, count, 1)),), (BinaryCrossEntropy(),))
    zeros = Quantised(np.zeros(count, np.int16), (0,), ())
    settings = SETTINGS.format(features=count, bound=BOUND)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), settings, rng) as scene:
        rows = canaries.features(count)
        make = lambda crowd: crowd.train(TAG, rows, [coins.astype(np.int64)])  # noqa: E731
        with sealed(scene, Purpose.TRAIN, make) as client:
            clip = clipping(scene.document)
            ran = ask(client, network, zeros, clip, Sampling(kind="poisson", rate=rate), steps, noise)
        told, drawn = _told(scene, ran, network, clip, count)
    scale = 2 * BOUND
    # Label 1 moves a gradient down.
    return _findings(coins, -ran.sums / scale, -told / scale, drawn, ran, rate, steps, noise)


def _told(
    scene: Stage, ran: Ran, network: Network, clip: Clip, count: int
) -> tuple[colluding.Floats, canaries.Flags]:
    """What helper 1 knows: its noise, and which canaries were in each batch."""
    helper = scene.helpers[1]
    opened = ran.receipts[helper.name]
    asked = GradientSteps(TAG, network, clip)
    told = colluding.step_noise(helper.folder, scene.origin, opened, asked, ran.bodies)
    order = colluding.features(helper.folder, count).argmax(axis=1)
    lying = colluding.batches(helper.folder, opened, TAG, len(ran.bodies), len(order))
    drawn = np.zeros((len(ran.bodies), count), np.bool_)
    drawn[:, order] = lying
    return told, drawn


def _findings(
    coins: canaries.Flags,
    seen: canaries.Floats,
    told: canaries.Floats,
    drawn: canaries.Flags,
    ran: Ran,
    rate: float,
    steps: int,
    noise: float,
) -> list[Finding]:
    opened = ran.receipts["helper-1"].course
    assert opened is not None, "a session with noise has a course"
    course = opened.course()
    helpers = len(ran.receipts)
    scores = canaries.without_batches(seen, rate, noise * helpers**0.5)
    alone = canaries.bound_without_batches(coins, scores, rate, steps, noise, DELTA, CONFIDENCE)
    known = canaries.with_batches(seen - told, drawn)
    largest = int(drawn.sum(axis=0).max())
    joined = canaries.bound_with_batches(coins, known, drawn.sum(axis=0), largest, noise, DELTA, CONFIDENCE)
    what = f"{len(coins)} canary labels, {steps} steps"
    return [
        Finding(what, "the ad server", alone.epsilon, adserver_epsilon(course)),
        Finding(what, "the ad server and helper-1", joined.epsilon, coalition_epsilon(course)),
    ]
