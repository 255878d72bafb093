"""What does a training run give away? Canary labels at real helpers bound both of its figures from below.

Each canary has a feature of its own, so that a run over n of them is n trials. The ad server guesses their
labels: from the sums; from the answers of each helper by itself, which it gets too, and which must not tell
who is in a batch; and with all helpers but one, who know the batches and tell their noise.

4,000 canaries at rate 1/4, 16 steps and noise 1 find 0.70 ± 0.04 of the second figure. Of the first a third
takes 60.5 % of right guesses, and 63.7 ± 0.8 % are. Chance makes that blind less than once in 1,000 audits.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskedlark.audit import answers, canaries, colluding
from maskedlark.cli.audits.asking import Ran, ask, clipping
from maskedlark.cli.audits.finding import CONFIDENCE, SEEN, SEEN_ALONE, Finding
from maskedlark.cli.audits.planting import SETTINGS, TAG, sealed
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import Course, adserver_epsilon, coalition_epsilon
from maskedlark.exact.clip import Clip
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.gradient import GradientSteps
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
    answers: FieldArray
    """Of each helper by itself: (steps, helpers, n)."""
    tail: int
    """What one helper's noise stays below, as answers have it."""


@dataclass(frozen=True)
class Audited:
    """Findings, and the figures that they are made of."""

    findings: Sequence[Finding]
    figures: Mapping[str, float]


def run(count: int, rate: float, steps: int, noise: float, rng: Randomness) -> Audited:
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
    sums, told = -ran.sums / (2 * BOUND), -told / (2 * BOUND)
    seen = Seen(coins, sums, told, drawn, ran.answers, _tail(network, clip, ran.bodies[0], noise))
    return judge(seen, opened.course(), rate)


def _tail(network: Network, clip: Clip, body: bytes, noise: float) -> int:
    (column,) = GradientSteps(TAG, network, clip).at(body, b"").columns
    return mechanisms.tail("gaussian", noise, column.sensitivity, 1)


def _told(
    scene: Stage, ran: Ran, network: Network, clip: Clip, count: int
) -> tuple[colluding.Floats, canaries.Flags]:
    """What helper 1 knows: its noise, and which canaries were in each batch."""
    helper = scene.helpers[1]
    opened = ran.receipts[helper.name]
    asked = GradientSteps(TAG, network, clip)
    told = colluding.step_noise(helper.folder, scene.document, opened, asked, ran.bodies)
    lying_there = colluding.records(helper.folder, scene.document, opened.datasets[0], TAG)
    order = lying_there.features.argmax(axis=1)
    lying = colluding.batches(helper.folder, scene.document, opened, TAG, len(ran.bodies), len(order))
    drawn = np.zeros((len(ran.bodies), count), np.bool_)
    drawn[:, order] = lying
    return told, drawn


def judge(seen: Seen, course: Course, rate: float) -> Audited:
    """What the ad server finds, alone and with what helper 1 told it. `rate`: of the batches."""
    coins, helpers = seen.coins, seen.answers.shape[1]
    noise, traces = course.noise * helpers**0.5, answers.traces(seen.answers)
    inside = answers.in_batches(traces, rate, seen.tail)
    from_sum = canaries.without_batches(seen.sums, rate, noise)
    from_answers = answers.scores(seen.sums, inside, rate, noise)
    alone = answers.bound_from_sum(coins, seen.sums, course, rate, helpers, CONFIDENCE)
    each = answers.bound_from_answers(coins, from_answers, course, CONFIDENCE)
    known = answers.bound_with_batches(coins, seen.sums - seen.told, seen.drawn, course, CONFIDENCE)
    members = answers.membership(traces, seen.drawn, rate, seen.tail)
    first, second = adserver_epsilon(course), coalition_epsilon(course)
    what, who = f"{len(coins)} canary labels, {course.steps} steps", "the ad server"
    apart = f"{who}, from single answers"
    findings = [
        Finding(what, f"{who}, from sums", alone.epsilon, first, SEEN_ALONE * first),
        Finding(what, apart, each.epsilon, first),
        Finding(what, f"{who} and helper-1", known.epsilon, second, SEEN * second),
        _guesses("labels guessed right", f"{who}, from sums", answers.labels(coins, from_sum, course)),
        _guesses("labels guessed right", apart, answers.labels(coins, from_answers, course)),
        _guesses("guessed right who is in a batch", apart, members),
    ]
    figures = {
        "charged_epsilon": first,
        "coalition_epsilon": second,
        "bound_from_sum": alone.epsilon,
        "bound_from_answers": each.epsilon,
        "bound_with_batches": known.epsilon,
        "membership_right": members.right,
        "membership_base_rate": members.allowed,
        "membership_error": members.error,
    }
    return Audited(findings, figures)


def _guesses(what: str, who: str, found: answers.Guesses) -> Finding:
    return Finding(what, who, found.right, found.most)
