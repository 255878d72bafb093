"""What does one release of moments reveal? Canary labels at real helpers bound its ε from below.

The network is the worst that an ad server can send: one ReLU for each record, which no other record fires. So
each record has a number of its own in the answer, and its row is clipped: the label moves it by all of the
sensitivity. A canary's labels are fair coins, and each label is a release by itself, with noise of its own:
n canaries of l labels are n · l trials. The ad server guesses them from the sums, from each helper's answers,
and with all helpers but one, who reveal their noise.

40,000 trials at ε = 1 find 0.51 ± 0.05 alone and 0.82 ± 0.05 together with Gaussian noise, and more with
Laplace noise: by chance, fewer than one audit in 1,000 is blind.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from maskedlark.adserver.client import Client
from maskedlark.adserver.requests import Requests
from maskedlark.audit import answers, canaries, colluding, crafted_weights
from maskedlark.audit.canaries import Flags, Floats
from maskedlark.audit.crafted_weights import Crafted
from maskedlark.cli.audits.auditor import DELTA, TAG, audited
from maskedlark.cli.audits.findings import CONFIDENCE, SEEN, SEEN_ALONE, Finding
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.mechanisms import Kind
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.functions import model, weights
from maskedlark.functions.moments import Moments, MomentsArguments
from maskedlark.randomness import Randomness
from maskedlark.release.messages import decode_answer
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.storage.engine import open_database

FEATURES = 64
FRACTION = 20
SETTINGS = """
k = 20
budget = {{epsilon = 100.0, delta = {delta}}}
training.adserver = {{epsilon = 100.0, delta = {delta}}}
training.coalition = {{epsilon = 100.0, delta = {delta}}}
mechanisms.moments = {{kind = "{kind}", noise_floor = 0.01}}
models.audited = {{columns = [{{kind = "bytes", count = 64}}], labels = [{labels}]}}
"""


class Seen(NamedTuple):
    """A release over canaries, in units of what a label moves."""

    sums: Floats
    told: Floats
    """The noise of helper 1 in the sums."""
    answers: FieldArray
    """Of each helper, as it came: (helpers, canaries)."""
    charged: float


def run(count: int, labels: int, epsilon: float, kind: Kind, rng: Randomness) -> list[Finding]:
    """Lower bounds on the ε of one release."""
    rows = np.frombuffer(rng.bytes(count * FEATURES), np.uint8).reshape(count, FEATURES)
    coins = rng.below(2, labels * count).reshape(labels, count)
    crafted = crafted_weights.craft(rows, np.arange(count), losses=(BinaryCrossEntropy(),) * labels)
    delta = 0.0 if kind == "laplace" else DELTA
    settings = SETTINGS.format(delta=delta, kind=kind, labels=", ".join(['{kind = "binary"}'] * labels))
    noise = accountant.noise_for(kind, 1, epsilon, delta)
    make = lambda crowd: crowd.train(TAG, rows, list(coins))  # noqa: E731
    with audited(settings, Purpose.TRAIN, make, rng) as (cluster, client):
        screen = Console(stderr=True)
        each = track(range(labels), "asking", console=screen, transient=True, disable=not screen.is_terminal)
        seen = [view(cluster, client, crafted, label, noise) for label in each]
    return judge(coins == 1, crafted.alone, seen, kind, noise)


def asked(crafted: Crafted, label: int) -> MomentsArguments:
    """The crafted question: R is the least that a ReLU which fires gives, so that all rows are clipped."""
    described, (exponent,) = model.describe(crafted.network, FRACTION), crafted.weights.activations
    text, clip = weights.to_text(crafted.weights), 2.0**-exponent
    return MomentsArguments(tag=TAG, model=described, weights=text, clip=clip, labels=(label,))


def view(cluster: LocalCluster, client: Client, crafted: Crafted, label: int, noise: float) -> Seen:
    """A release of one label, as the ad server and helper 1 see it."""
    answered = client.ask(Moments(), asked(crafted, label).model_dump(mode="json"), noise=noise)
    (table,), released, helper = answered.tables, answered.receipts["helper-1"], cluster.helpers[1]
    (column,), sums = table.schema.columns, table.columns[0][0]
    told = colluding.release_noise(helper.folder, cluster.document, released, column.sensitivity, len(sums))
    with closing(open_database(f"sqlite:///{cluster.folder / 'reports.sqlite'}", make=False)) as database:
        kept = Requests(database).answers(answered.request)
    single = np.stack([decode_answer(kept[each.name]).tables[0].columns[0][0] for each in cluster.helpers])
    unit = np.float64(1 << FRACTION)
    return Seen(sums / unit, told / unit, single, released.balance.charged_epsilon)


def judge(coins: Flags, alone: Flags, seen: Sequence[Seen], kind: Kind, noise: float) -> list[Finding]:
    """What the ad server finds about canaries, by itself and with what helper 1 reveals.

    `coins`: (labels, n). `alone`: the canaries whose ReLU no other fires. `noise`: as declared.
    """
    truth, charged = coins[:, alone], seen[0].charged
    sums, told = (np.array(each)[:, alone].ravel() for each in list(zip(*seen, strict=True))[:2])
    first, second = (_bound(truth.ravel(), view - 0.5, kind, noise) for view in (sums, sums - told))
    traces = answers.traces(np.array([each.answers for each in seen])[:, :, alone])
    right = answers.learned([answers.top_bits(each) for each in traces], truth)
    rest = truth[:, truth.shape[1] // 2 :]
    single = answers.guessed(right, rest, answers.base_rate(rest))
    what, who = f"{alone.sum()} canaries, {len(coins)} labels", "the ad server"
    return [
        Finding(what, f"{who}, from sums", first, charged, SEEN_ALONE * charged),
        Finding(what, f"{who} and helper-1", second, charged, SEEN * charged),
        Finding("labels guessed right", f"{who}, from single answers", single.right, single.most),
    ]


def _bound(coins: Flags, scores: Floats, kind: Kind, noise: float) -> float:
    if kind == "laplace":
        return canaries.lower_bound(coins, scores, CONFIDENCE)
    once = np.ones(len(coins), np.int64)
    return canaries.bound_with_batches(coins, scores, once, 1, noise, DELTA, CONFIDENCE).epsilon
