"""Claim 12: running helpers are audited with canaries. What is found is under the declared ε, and not far.

One release over many groups is as many trials: each group is one canary, whose value a coin chose, and its
noise is its own. The auditor is the ad server, alone or with all helpers but one: the colluding helper hands
over its noise, so that what is left is the honest helper's.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maskedlark.audit import canaries, colluding
from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant, mechanisms
from maskedlark.dp.mechanisms import Kind
from maskedlark.functions.sums import Sums
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from tests.integration.waiting import next_second

CANARIES = 5_000
RELEASES = 12
"""Each with noise of its own, so that every canary is a trial in each."""
CONFIDENCE = 0.9999
"""So at 95 % too; and a bound is over the true ε by chance once in ten thousand. With so many trials the
bounds' deviation is about 0.05: to fall below the half they are asked for would take five of them."""
HIGH = 100
EPSILON = 1.0
"""Declared for one release."""
SETTINGS = """
keys = ["canary"]
k = 1
budget = {{epsilon = 100.0, delta = {delta}}}
mechanisms = {{sums = {{kind = "{kind}", noise_floor = 0.5}}}}
[values]
euros = [0, 100]
"""


@pytest.fixture(scope="module", params=["laplace", "gaussian"])
def audited(request, tmp_path_factory):
    """A stage whose dataset is canaries alone, and their coins."""
    kind, folder = request.param, tmp_path_factory.mktemp("canaries")
    coins = FixedRandomness(b"coins").below(2, CANARIES).astype(bool)
    delta = 0.0 if kind == "laplace" else 1e-5
    with (
        ProcessPoolExecutor(2) as pool,
        local_cluster(folder, SETTINGS.format(kind=kind, delta=delta), SystemRandomness()) as made,
    ):
        seen = SystemClock().now() - made.document.attribution_window_s - made.document.delay.max_s - 3600
        population = Population(made.document, made.sealing_keys(), seen, SystemRandomness(), pool)
        made.upload(population.measure([range(CANARIES)], [coins * HIGH]))
        with made.client() as client:
            client.select("canaries", 0, next_second(), Purpose.AGGREGATE)
            client.send("canaries")
        yield made, np.tile(coins, RELEASES), kind, delta


def views(made: LocalCluster, kind: Kind, delta: float) -> dict[str, np.ndarray]:
    """What an auditor sees of every canary in some releases: alone, and with helper 1."""
    seen = [_view(made, kind, accountant.noise_for(kind, 1, EPSILON, delta)) for _ in range(RELEASES)]
    alone, joined = (np.concatenate(each) for each in zip(*seen, strict=True))
    return {"alone": alone, "with helper 1": joined}


def _view(made: LocalCluster, kind: Kind, noise: float) -> tuple[np.ndarray, np.ndarray]:
    with made.client() as client:
        answered = client.ask(Sums(), {"values": ["euros"], "by": [["canary"]]}, noise=noise)
    (table,) = answered.tables
    assert [row[0] for row in table.rows] == list(range(CANARIES))
    alone = table.columns[0].ravel()
    sensitivity, released = mechanisms.Sensitivity(HIGH, float(HIGH)), answered.receipts["helper-1"]
    folder = made.helpers[1].folder
    return alone, alone - colluding.release_noise(folder, made.document, released, sensitivity, CANARIES)


def test_the_empirical_epsilon_is_under_the_declared_one_and_over_half_of_it(audited):
    made, coins, kind, delta = audited
    found = {name: bound(coins, seen, kind, delta) for name, seen in views(made, kind, delta).items()}
    print(kind, found)
    assert found["alone"] <= found["with helper 1"] < EPSILON
    assert found["with helper 1"] >= EPSILON / 2


def test_halved_noise_is_seen(audited, monkeypatch):
    made, coins, kind, delta = audited
    root = str(Path(__file__).parents[2])
    for helper in made.helpers:
        helper.process.stop()
        helper.config.write_text(
            'functions = ["tests.statistical.halved_noise"]\n' + helper.config.read_text()
        )
        helper.process.start(PYTHONPATH=root)
    monkeypatch.setattr(mechanisms, "draw", _half(mechanisms.draw))
    seen = views(made, kind, delta)["with helper 1"]
    found = bound(coins, seen, kind, delta)
    print(kind, "halved", found)
    assert found > EPSILON


def bound(coins, seen, kind, delta) -> float:
    if kind == "laplace":
        return canaries.lower_bound(coins, seen, CONFIDENCE, delta)
    return canaries.gaussian_lower_bound(coins, seen, HIGH / 2, CONFIDENCE, delta)


def _half(draw):
    return lambda kind, noise, *rest: draw(kind, noise / 2, *rest)
