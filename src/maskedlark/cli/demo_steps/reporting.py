"""The demo's settings, reports and datasets. One real browser reports step by step, all others at once."""

import time
from contextlib import closing

from maskedlark.adserver.client import Client
from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.browser.upload import Uploader
from maskedlark.cli.demo_steps.people import CAMPAIGNS, People
from maskedlark.cli.demo_steps.results import Sent
from maskedlark.cli.output import Screen
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.features import Encoder
from maskedlark.ledger.wording import both
from maskedlark.parameters.decoys import decoy_rows
from maskedlark.parameters.policy import Policy, against_coalition
from maskedlark.parameters.settings import Budget
from maskedlark.simulate import processes
from maskedlark.simulate.cluster import DAY_S, LocalCluster

MODEL = "ConversionModel11005"
DELTA = 1e-5
SHOP = "shop.example"
DATASETS = {Purpose.AGGREGATE: "demo", Purpose.TRAIN: "demo-training"}


def settings(encoder: Encoder) -> str:
    """The TOML of `maskedlark parameters draft`: campaigns to measure, and a model to train."""
    decoys = [f'{{keys = {{campaign = "{name}"}}}}' for name in CAMPAIGNS[:-1]]
    decoys += [f'{{tag = "{MODEL}", columns = "{row.tobytes().hex()}"}}' for row in decoy_rows(encoder)]
    return f"""
keys = ["campaign"]
checks = true
fake_rate = 0.2
budget = {{epsilon = 8.0, delta = {2 * DELTA}}}
training.adserver = {{epsilon = 4.0, delta = {2 * DELTA}}}
training.coalition = {{epsilon = 8.0, delta = {2 * DELTA}}}
decoys = [{", ".join(decoys)}]
values = {{bought = [0, 1], euros = [0, 200]}}
models.{MODEL}.columns = [{{kind = "bytes", count = {len(encoder)}}}]
models.{MODEL}.encoder = "{encoder.digest.hex()}"
"""


def run(console: Screen, cluster: LocalCluster, client: Client, crowd: People, encoder: Encoder) -> Sent:
    """Upload everyone's reports to the ad server; then freeze a dataset per purpose at every helper."""
    document = cluster.document
    names = ", ".join(helper.name for helper in document.helpers)
    cost = both(document.budget.epsilon, against_coalition(document).epsilon)
    console.say(f"""The parameter service publishes what [bold]{cluster.origin}[/] declares (version
        {document.version}, digest {document.digest.hex()[:8]}…): helpers {names}; k = {document.k}; a source
        may cost ε = {cost}; {document.fake_rate:.0%} fakes.""")
    start = time.perf_counter()
    sent = _report(cluster, crowd, encoder)
    console.say(f"""Browsers waited, faked, split and sealed; the ad server took [bold]{sent} reports[/] over
        HTTP in {time.perf_counter() - start:.0f} s. It cannot read one of them.""")
    start = time.perf_counter()
    frozen = cluster.freeze(client, DATASETS)
    records = " and ".join(f"{each.records} to {purpose}" for purpose, each in frozen.items())
    console.say(f"""Every helper opened its part of all reports, fakes among them, checked with the others
        that each is valid, and froze the same two datasets: [bold]{records}[/],
        in {time.perf_counter() - start:.0f} s.""")
    return Sent(sent, *(each.records or 0 for each in frozen.values()))


def _report(cluster: LocalCluster, crowd: People, encoder: Encoder) -> int:
    buyer = crowd.first_buyer()
    sent = _one_browser(cluster, crowd, buyer, encoder)
    others = crowd.without(buyer)
    with processes(2) as pool:
        population = cluster.browsers(pool, progress=True)
        sent += cluster.upload(population.measure([others.campaign.tolist()], [others.bought, others.euros]))
        return sent + cluster.upload(population.train(MODEL, encoder.encode(others.known), [others.bought]))


def _one_browser(cluster: LocalCluster, crowd: People, person: int, encoder: Encoder) -> int:
    """A real browser: sees an ad, buys, is closed and opened again, waits, and reports."""
    clock = FixedClock(SystemClock().now() - 9 * DAY_S)
    document = cluster.document
    trusted = tuple(helper.identity for helper in document.helpers)
    max_budget, max_coalition = (Budget(epsilon=each, delta=document.budget.delta) for each in (10, 100))
    policy = Policy(trusted_helpers=trusted, max_budget=max_budget, max_coalition=max_coalition)
    path = cluster.folder / "browser.sqlite"
    with closing(Store(path)) as store:
        browser = Browser(store, cluster.parameters, policy, clock, cluster.rng)
        features = encoder.encode(crowd.known)[person]
        keys = {"campaign": str(crowd.campaign[person])}
        browser.register_source(cluster.origin, Kind.CLICK, SHOP, keys, {MODEL: features.tobytes()})
        clock.seconds += 3600
        browser.register_trigger(cluster.origin, SHOP, {"bought": 1, "euros": int(crowd.euros[person])})
    clock.seconds = SystemClock().now()
    with closing(Store(path)) as store:
        Browser(store, cluster.parameters, policy, clock, cluster.rng).report_due()
        outbox = Outbox(store, cluster.origin)
        uploader = Uploader(cluster.adserver.address, cluster.http, SystemClock(), cluster.rng, outbox)
        return uploader.send_due().acknowledged
