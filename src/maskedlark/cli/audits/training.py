"""What does a training run reveal? Canary labels at real helpers bound both of its ε figures from below.

Each canary has a feature of its own, so that a run over n of them is n trials. The ad server guesses their
labels: from the sums; from each helper's answers, which must not reveal who is in a batch; and with all
helpers but one, who know the batches and reveal their noise.

4,000 canaries at rate 1/4, 16 steps and noise 1 find 0.70 ± 0.04 of the second figure. A third of the first
needs 60.5 % right guesses, and 63.7 ± 0.8 % are right. By chance, fewer than one audit in 1,000 is blind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maskedlark.adserver.client import Client
from maskedlark.audit import answers, canaries, colluding
from maskedlark.cli.audits.auditor import DELTA, SETTINGS, TAG, audited
from maskedlark.cli.audits.findings import CONFIDENCE, SEEN, SEEN_ALONE, Finding
from maskedlark.core import sharing
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.gradient import lift
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.gradient import Gradient, GradientSteps
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release.messages import SessionRequest
from maskedlark.simulate.cluster import LocalCluster

BOUND = 0.05
"""ψ: every canary's gradient is clipped to it, for both labels."""
Findings = tuple[list[Finding], dict[str, float]]
"""Findings, and the figures that they are made of, by name."""


@dataclass(frozen=True)
class FinishedSession:
    """A training session as the ad server saw it."""

    sums: canaries.Floats
    """Noisy sums of gradients, in reals: (steps, size)."""
    answers: FieldArray
    """Each helper's answers: (steps, helpers, size)."""
    bodies: Sequence[bytes]
    receipts: Mapping[str, OpenedReceipt]


def run_session(
    client: Client, asked: GradientSteps, quantised: Quantised, sampling: Sampling, steps: int, noise: float
) -> FinishedSession:
    """Run a session with the same weights in every step. Run by an ad server that may be dishonest."""
    network, clip = asked.network, asked.clipping
    document, digests = client.frozen_to_train(None)
    request = SessionRequest(
        id=client.new_id(),
        datasets=tuple(digest.hex() for digest in digests),
        slots=client.free_slots(document, digests),
        function=Gradient.name,
        tag=TAG,
        arguments=described.describe(network, clip.fraction, clip.depth).model_dump(),
        noise=noise,
        sampling=sampling,
        steps=steps,
        delta=DELTA,
    )
    session, body = client.session(document, request.encode()), weights.encode(quantised)
    try:
        receipts = session.open()
        answers = np.array([session.answers(number, body, network.size) for number in range(steps)])
    finally:
        session.stop()
    sums = np.array([lift(network, quantised, clip, sharing.combine(list(each))) for each in answers])
    return FinishedSession(sums, answers, [body] * steps, receipts)


def clipping(document: Document) -> Clip:
    """The clipping that the document declares for the audited model."""
    return Clip(document.trained(TAG).gradient_bound, Norm.L2, 20, 0)


def run(count: int, rate: float, steps: int, noise: float, rng: Randomness) -> Findings:
    """Lower bounds on the ε of one run, against its two accounted figures."""
    coins = rng.below(2, count) == 1
    network = Network((Layer(Linear("w0", None, count, 1)),), (BinaryCrossEntropy(),))
    zeros = Quantised(np.zeros(count, np.int16), (0,), ())
    settings = SETTINGS.format(features=count, bound=BOUND)
    rows = canaries.features(count)
    make = lambda crowd: crowd.train(TAG, rows, [coins.astype(np.int64)])  # noqa: E731
    with audited(settings, Purpose.TRAIN, make, rng) as (cluster, client):
        asked = GradientSteps(TAG, network, clipping(cluster.document))
        ran = run_session(client, asked, zeros, Sampling(kind="poisson", rate=rate), steps, noise)
        told, drawn = _told(cluster, ran, asked)
    opened = ran.receipts["helper-1"].session_charge
    assert opened is not None, "a session with noise has a charge"
    # Label 1 moves a gradient down.
    sums, told = -ran.sums / (2 * BOUND), -told / (2 * BOUND)
    (column,) = asked.at(ran.bodies[0], b"").columns
    tail = mechanisms.tail("gaussian", noise, column.sensitivity, 1)
    return judge(coins, sums, told, drawn, ran.answers, tail, opened, rate)


def _told(
    cluster: LocalCluster, ran: FinishedSession, asked: GradientSteps
) -> tuple[canaries.Floats, canaries.Flags]:
    """What helper 1 knows: its noise, and the canaries of each batch."""
    helper, document = cluster.helpers[1], cluster.document
    opened = ran.receipts[helper.name]
    told = colluding.step_noise(helper.folder, document, opened, asked, ran.bodies)
    order = colluding.records(helper.folder, document, opened.datasets[0], TAG).features.argmax(axis=1)
    drawn = np.zeros(told.shape, np.bool_)
    drawn[:, order] = colluding.batches(helper.folder, document, opened, TAG, len(ran.bodies), len(order))
    return told, drawn


def judge(
    coins: canaries.Flags,
    sums: canaries.Floats,
    told: canaries.Floats,
    drawn: canaries.Flags,
    each_answer: FieldArray,
    tail: int,
    charge: SessionCharge,
    rate: float,
) -> Findings:
    """What the ad server finds about n canaries, alone and with what helper 1 reveals.

    `coins`: their labels, to be guessed. `sums`: noisy, (steps, n), in units of the sensitivity; `told`: the
    noise of helper 1 in them. `drawn`: the canaries of each batch. `each_answer`: every helper's, (steps,
    helpers, n). `tail`: the bound on one helper's noise in an answer. `rate`: the sampling rate.
    """
    helpers = each_answer.shape[1]
    noise, traces = charge.noise * helpers**0.5, answers.traces(each_answer)
    inside = answers.in_batches(traces, rate, tail)
    from_sum = canaries.without_batches(sums, rate, noise)
    from_answers = answers.scores(sums, inside, rate, noise)
    alone = canaries.bound_without_batches(
        coins, from_sum, rate, charge.steps, charge.noise, charge.delta, CONFIDENCE
    )
    each = canaries.signed_lower_bound(coins, from_answers, CONFIDENCE, charge.delta)
    known = answers.bound_with_batches(coins, sums - told, drawn, charge, CONFIDENCE)
    members = answers.guess_membership(traces, drawn, rate, tail)
    first, second = adserver_epsilon(charge), coalition_epsilon(charge)
    what, who = f"{len(coins)} canary labels, {charge.steps} steps", "the ad server"
    apart = f"{who}, from single answers"
    findings = [
        Finding(what, f"{who}, from sums", alone.epsilon, first, SEEN_ALONE * first),
        Finding(what, apart, each, first),
        Finding(what, f"{who} and helper-1", known.epsilon, second, SEEN * second),
        _guesses("labels guessed right", f"{who}, from sums", answers.guess_labels(coins, from_sum, charge)),
        _guesses("labels guessed right", apart, answers.guess_labels(coins, from_answers, charge)),
        _guesses("guessed right who is in a batch", apart, members),
    ]
    figures = {
        "charged_epsilon": first,
        "coalition_epsilon": second,
        "bound_from_sum": alone.epsilon,
        "bound_from_answers": each,
        "bound_with_batches": known.epsilon,
        "membership_right": members.right,
        "membership_base_rate": members.allowed,
        "membership_error": members.error,
    }
    return findings, figures


def _guesses(what: str, who: str, guesses: answers.Guesses) -> Finding:
    return Finding(what, who, guesses.right, guesses.most)
