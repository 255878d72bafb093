"""The running system: all parties as processes, browsers' reports, answers beside the truth.

20,000 browsers in the long run; the quick one has fewer, whose answers have the same noise and intervals.
"""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from maskedlark.adserver.query_arguments import Between
from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.functions.function import Group
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.receipt import decode
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from tests.integration.waiting import next_second

SETTINGS = """
keys = ["campaign", "place", "age"]
k = 100
fake_rate = 0.2
decoys = [{keys = {campaign = "spring", place = "top", age = 30}},
          {keys = {campaign = "winter", place = "side", age = 50}}]
budget = {epsilon = 8.0, delta = 0.0}
[values]
bought = [0, 1]
euros = [-20, 200]
"""
QUICK, BROWSERS = 5_000, 20_000
CAMPAIGNS = np.array(["autumn", "spring", "winter", "rare"])
CONFIDENCE = 1 - 1e-9
"""Some hundred intervals are checked: a false alarm is rarer than one run in a million."""


class People:
    """What ads they saw and what they did."""

    def __init__(self, count: int, seed: bytes) -> None:
        rng = FixedRandomness(seed)
        chance = rng.unit(count)
        # 60 of them saw the rare campaign: fewer than k.
        self.campaign = CAMPAIGNS[np.where(np.arange(count) < 60, 3, (chance * 3).astype(int))]
        self.place = np.array(["top", "side"])[rng.below(2, count)]
        self.age = 18 + rng.below(60, count)
        self.bought = (rng.unit(count) < 0.1).astype(np.int64)
        self.euros = self.bought * (rng.below(221, count) - 20)

    def keys(self):
        return [self.campaign.tolist(), self.place.tolist(), self.age.tolist()]

    def reported(self, made: LocalCluster, pool) -> None:
        population = Population(made.document, made.sealing_keys(), _seen(made), SystemRandomness(), pool)
        made.upload(population.measure(self.keys(), [self.bought, self.euros]))


def _seen(made: LocalCluster) -> int:
    """So long ago that every browser has waited long enough."""
    return SystemClock().now() - made.document.attribution_window_s - made.document.delay.max_s - 3600


def check(table, wanted: dict[Group, dict[str, int]]) -> None:
    """Every group that there should be, within its interval; no other."""
    found = {row.group: row.numbers for row in table.rows}
    assert found.keys() == wanted.keys()
    for group, truth in wanted.items():
        for estimate, name in zip(found[group], table.values, strict=True):
            assert estimate.low <= truth[name] <= estimate.high, (group, name)


@pytest.mark.parametrize(
    ("helpers", "kind", "browsers"),
    [
        (3, "postgresql", QUICK),
        # Two helpers and SQLite are in every other test, and in the demo.
        pytest.param(2, "sqlite", BROWSERS, marks=pytest.mark.long),
        pytest.param(2, "postgresql", BROWSERS, marks=pytest.mark.long),
        pytest.param(3, "sqlite", BROWSERS, marks=pytest.mark.long),
        pytest.param(3, "postgresql", BROWSERS, marks=pytest.mark.long),
    ],
)
def test_every_group_is_within_its_interval(helpers, kind, browsers, tmp_path, request):
    people, database_url = People(browsers, b"people"), request.getfixturevalue(f"{kind}_url")
    with (
        ProcessPoolExecutor(2) as pool,
        local_cluster(tmp_path, SETTINGS, SystemRandomness(), helpers, database_url) as made,
    ):
        people.reported(made, pool)
        end = next_second()
        with made.client() as client:
            client.select("all", 0, end, Purpose.AGGREGATE)
            frozen = client.send("all")
            assert frozen.records is not None
            assert browsers < frozen.records < 1.3 * browsers, "fakes are among them"
            tables = client.query(
                ["count", "bought", "euros"],
                by=[["campaign"], ["campaign", "place"], []],
                noise=9.0,
                confidence=CONFIDENCE,
            )
            for table, by in zip(tables, (["campaign"], ["campaign", "place"], []), strict=True):
                check(table, truth(people, by, np.ones(browsers, bool)))
            young = client.query(
                ["bought"], by=["campaign"], where={"age": Between(18, 40), "place": "top"},
                confidence=CONFIDENCE, noise=4.0,
            )  # fmt: skip
            check(young, truth(people, ["campaign"], (people.age <= 40) & (people.place == "top")))
        check_receipts(made)


def truth(people: People, by: list[str], chosen: np.ndarray) -> dict[Group, dict[str, int]]:
    """Exact sums by group, without groups that cannot reach k. (Fakes count for k, so none is near it.)"""
    rows: dict[Group, dict[str, int]] = {}
    keys = [getattr(people, name) for name in by]
    for group in sorted({tuple(key[i].item() for key in keys) for i in np.flatnonzero(chosen)}):
        members = chosen.copy()
        for key, wanted in zip(keys, group, strict=True):
            members &= key == wanted
        if "rare" in group:
            continue
        rows[group] = {
            "count": int(members.sum()),
            "bought": int(people.bought[members].sum()),
            "euros": int(people.euros[members].sum()),
        }
    return rows


def check_receipts(made: LocalCluster) -> None:
    """As a third party would: the receipts that a helper shows, and public documents."""
    import json

    import httpx

    for helper in made.helpers:
        page = httpx.get(f"{helper.process.address}/v2/origins/{made.origin}/receipts").json()
        chain = [decode(json.dumps(each)) for each in page["receipts"]]
        found = receipt_verification.verify(chain, made.origin, helper.name, made.documents)
        kinds = [receipt.kind for receipt in found.receipts]
        assert kinds == ["frozen", "release", "release"]
        # Nine columns with noise 9 and one with noise 4.
        assert found.spent()[made.document.digest.hex()].epsilon == pytest.approx(1.25)
