"""What do answers reveal? Canaries at real helpers bound the ε of a release from below.

A canary is a record whose value a coin chose, in a group of its own, so that one release over n canaries is
n trials. The ad server guesses the coins, alone and with all helpers but one.

80,000 trials at ε = 1 find 0.50 ± 0.03 alone and 0.80 ± 0.03 together with Gaussian noise, and more with
Laplace noise: by chance, fewer than one audit in 1,000 is blind.
"""

import numpy as np

from maskedlark.adserver.client import Client
from maskedlark.audit import canaries, colluding
from maskedlark.audit.canaries import Flags, Floats
from maskedlark.cli.audits.auditor import DELTA, audited
from maskedlark.cli.audits.findings import CONFIDENCE, SEEN, SEEN_ALONE, Finding
from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant
from maskedlark.dp.mechanisms import Kind, Sensitivity
from maskedlark.functions.sums import Sums
from maskedlark.randomness import Randomness
from maskedlark.simulate.cluster import MAX_BUDGET, LocalCluster

HIGH = 100
MAX_EPSILON = MAX_BUDGET.epsilon
"""The limit for all releases of one audit: helpers accept no document with more."""
_SETTINGS = """
keys = ["canary"]
k = 1
budget = {{epsilon = {budget}, delta = {delta}}}
mechanisms = {{sums = {{kind = "{kind}", noise_floor = 0.1}}}}
values = {{euros = [0, 100]}}
"""


def run(count: int, releases: int, epsilon: float, kind: Kind, rng: Randomness) -> list[Finding]:
    """Lower bounds on the ε of one release."""
    coins = rng.below(2, count) == 1
    delta = 0.0 if kind == "laplace" else DELTA
    settings = _SETTINGS.format(
        budget=min(MAX_BUDGET.epsilon, 2 * releases * epsilon), delta=delta, kind=kind
    )
    make = lambda crowd: crowd.measure([range(count)], [coins * HIGH])  # noqa: E731
    with audited(settings, Purpose.AGGREGATE, make, rng) as (cluster, client):
        noise = accountant.noise_for(kind, 1, epsilon, delta)
        seen = [_view(cluster, client, noise, count) for _ in range(releases)]
    alone, joined = (np.concatenate(each) for each in zip(*seen, strict=True))
    what = f"{count} canaries, {releases} releases"
    return judge(what, np.tile(coins, releases), alone, joined, epsilon, kind)


def judge(
    what: str, coins: Flags, alone: Floats, joined: Floats, epsilon: float, kind: Kind
) -> list[Finding]:
    """What the ad server finds in its view of every trial, alone and with what helper 1 reveals."""
    first, second = (_bound(coins, view, kind) for view in (alone, joined))
    return [
        Finding(what, "the ad server", first, epsilon, SEEN_ALONE * epsilon),
        Finding(what, "the ad server and helper-1", second, epsilon, SEEN * epsilon),
    ]


def _view(cluster: LocalCluster, client: Client, noise: float, count: int) -> tuple[Floats, Floats]:
    """The ad server's view of every canary in one release, alone and with what helper 1 reveals."""
    answered = client.ask(Sums(), {"values": ["euros"], "by": [["canary"]]}, noise=noise)
    (table,) = answered.tables
    assert [row[0] for row in table.rows] == list(range(count)), "noise is in the order of the groups"
    alone = table.columns[0].ravel().astype(np.float64)
    sensitivity, released = Sensitivity(HIGH, float(HIGH)), answered.receipts["helper-1"]
    folder = cluster.helpers[1].folder
    told = colluding.release_noise(folder, cluster.document, released, sensitivity, count)
    return alone, alone - told


def _bound(coins: Flags, seen: Floats, kind: Kind) -> float:
    if kind == "laplace":
        return canaries.lower_bound(coins, seen, CONFIDENCE)
    return canaries.gaussian_lower_bound(coins, seen, HIGH / 2, CONFIDENCE, DELTA)
