"""What does a training run give away? Canary labels at real helpers bound both of its figures from below.

Each canary has a feature of its own, so that a run over n of them is n trials. The ad server guesses their
labels: alone, without knowing the batches; and with all helpers but one, who know them and tell their noise.

4,000 canaries at rate 1/4, 16 steps and noise 1 find 0.70 ± 0.04 of the second figure. Of the first a third
takes 60.5 % of right guesses, and 63.7 ± 0.8 % are. Chance makes that blind less than once in 1,000 audits.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskedlark.audit import colluding_sessions as colluding
from maskedlark.audit import training_canaries as canaries
from maskedlark.cli.audits.asking import DELTA, Ran, ask, clipping
from maskedlark.cli.audits.finding import CONFIDENCE, SEEN, SEEN_ALONE, Finding
from maskedlark.cli.audits.planting import SETTINGS, TAG, sealed
from maskedlark.core.purpose import Purpose
from maskedlark.exact.clip import Clip
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.gradient import GradientSteps
from maskedlark.privacy.course import Course, adserver_epsilon, coalition_epsilon
from maskedlark.privacy.sampling import Sampling
from maskedlark.randomness import Randomness
from maskedlark.simulate.stage import Stage, stage

BOUND = 0.05
"""ψ: a canary's gradient is clipped to it, whatever its label."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A run over canaries, as helper 1 and the ad server know it together."""

    coins: canaries.Flags
    """The labels, one a canary: what is guessed."""
    sums: canaries.Floats
    """Noisy, (steps, n), in units of the sensitivity."""
    told: canaries.Floats
    """Of these, helper 1's noise."""
    drawn: canaries.Flags
    """Which canaries were in each batch."""


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
    opened = ran.receipts["helper-1"].course
    assert opened is not None, "a session with noise has a course"
    # Label 1 moves a gradient down.
    seen = Seen(coins, -ran.sums / (2 * BOUND), -told / (2 * BOUND), drawn)
    return judge(seen, opened.course(), rate, len(ran.receipts))


def _told(
    scene: Stage, ran: Ran, network: Network, clip: Clip, count: int
) -> tuple[colluding.Floats, canaries.Flags]:
    """What helper 1 knows: its noise, and which canaries were in each batch."""
    helper = scene.helpers[1]
    opened = ran.receipts[helper.name]
    asked = GradientSteps(TAG, network, clip)
    told = colluding.step_noise(helper.folder, scene.origin, opened, asked, ran.bodies)
    lying_there = colluding.records(helper.folder, scene.document, opened.datasets[0], TAG)
    order = lying_there.features.argmax(axis=1)
    lying = colluding.batches(helper.folder, scene.document, opened, TAG, len(ran.bodies), len(order))
    drawn = np.zeros((len(ran.bodies), count), np.bool_)
    drawn[:, order] = lying
    return told, drawn


def judge(seen: Seen, course: Course, rate: float, helpers: int) -> list[Finding]:
    """What the ad server finds, alone and with what helper 1 told it. `rate`: of the batches."""
    steps, noise = course.steps, course.noise
    scores = canaries.without_batches(seen.sums, rate, noise * helpers**0.5)
    alone = canaries.bound_without_batches(seen.coins, scores, rate, steps, noise, DELTA, CONFIDENCE)
    what = f"{len(seen.coins)} canary labels, {steps} steps"
    first, second = adserver_epsilon(course), coalition_epsilon(course)
    return [
        Finding(what, "the ad server", alone.epsilon, first, SEEN_ALONE * first),
        Finding(what, "the ad server and helper-1", _joined(seen, noise), second, SEEN * second),
    ]


def _joined(seen: Seen, noise: float) -> float:
    # Where a canary is in many batches, all are guessed right: that says nothing of how much noise there is.
    some, largest = canaries.first(seen.drawn, canaries.judged(noise)), int(seen.drawn.sum(axis=0).max())
    known = canaries.with_batches(seen.sums - seen.told, some)
    return canaries.bound_with_batches(
        seen.coins, known, some.sum(axis=0), largest, noise, DELTA, CONFIDENCE
    ).epsilon
