"""`maskedlark demo`: real services, a small population, a private report, and what each party sees."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from maskedlark.adserver.client import Client
from maskedlark.audit import masks, mersenne, prototype
from maskedlark.audit.advantage import advantage
from maskedlark.cli import browsers, sights
from maskedlark.cli.people import People, people
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotMersenne
from maskedlark.privacy import trail
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.stage import Stage, stage
from maskedlark.workflow import Workflow

DATASET = "demo"
NOISE = 1.5
SETTINGS = """
keys = ["campaign"]
fake_rate = 0.2
decoys = [
    {keys = {campaign = "autumn"}},
    {keys = {campaign = "spring"}},
    {keys = {campaign = "winter"}},
    {tag = "ConversionModel11005", features = "20406080"},
    {tag = "ConversionModel11005", features = "c0a08060"},
]
[values]
bought = [0, 1]
euros = [0, 200]
[models.ConversionModel11005]
features = 4
"""


def demo(
    users: Annotated[int, typer.Option(min=1500, max=100_000, help="How many people see an ad.")] = 3000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many helpers share every secret.")] = 2,
) -> None:
    """Follow the reports of a small population through running services, ask, and attack."""
    console, rng = Console(highlight=False), SystemRandomness()
    crowd = people(users)
    console.print(
        f"\n[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] "
        "Their browsers know; nobody else will see what one of them did.\n"
    )
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), SETTINGS, rng, helpers) as scene:
        _declared(console, scene)
        _reported(console, scene, crowd)
        with scene.client() as client:
            _sent(console, client)
            _campaigns(console, client, crowd)
            _receipts(console, scene, client)
        measured = sights.opened(scene, scene.document.measure)
        trained = sights.opened(scene, scene.document.declared_models[browsers.MODEL])
    _one_person(console, measured)
    _attacks(console, trained)


def _declared(console: Console, scene: Stage) -> None:
    found = scene.document
    names = ", ".join(helper.name for helper in found.helpers)
    console.print(
        f"The parameter service publishes what [bold]{scene.origin}[/] declares (version {found.version}, "
        f"digest {found.digest.hex()[:8]}…): helpers {names}; k = {found.k}; a source may cost "
        f"ε = {found.budget.epsilon:g}; {found.fake_rate:.0%} fakes.\n"
    )


def _reported(console: Console, scene: Stage, crowd: People) -> None:
    start = time.perf_counter()
    sent = browsers.report(scene, crowd)
    console.print(
        f"Browsers waited, faked, split and sealed; the ad server took [bold]{sent} reports[/] over HTTP "
        f"in {time.perf_counter() - start:.0f} s. It cannot read one of them.\n"
    )


def _sent(console: Console, client: Client) -> None:
    start, end = time.perf_counter(), SystemClock().now() + 1
    while SystemClock().now() < end:  # Only a second that is over gets no more reports.
        time.sleep(0.05)
    client.freeze(DATASET, 0, end, Purpose.AGGREGATE)
    sealed = client.send(DATASET)
    console.print(
        f"Every helper opened its part of [bold]{sealed.records} reports[/], fakes among them, and sealed "
        f"the same dataset ({(sealed.digest or b'').hex()[:8]}…) in {time.perf_counter() - start:.0f} s.\n"
    )


def _campaigns(console: Console, client: Client, crowd: People) -> None:
    report = client.query(["bought", "euros"], by="campaign", noise=NOISE)
    title = "The campaign report: private beside true, which nobody has"
    table = _table(title, "campaign", "buyers", "95 % interval", "true", "euros", "95 % interval", "true")
    names = np.array(crowd.campaign)
    for (campaign,), (bought, euros) in report.rows:
        mine = names == campaign
        cells = [
            *(str(bought.estimate), f"{bought.low} … {bought.high}", str(crowd.bought[mine].sum())),
            *(str(euros.estimate), f"{euros.low} … {euros.high}", str(crowd.euros[mine].sum())),
        ]
        table.add_row(str(campaign), *cells)
    console.print(table)
    hidden = sorted(set(crowd.campaign) - {str(row.group[0]) for row in report.rows})
    cost = report.balance
    console.print(
        f"Not shown: {', '.join(hidden)}, of fewer than k = {report.k} records. The report cost "
        f"ε = {cost.charged_epsilon:.3g}; {cost.left_epsilon:.3g} is left for any source in it.\n"
    )


def _receipts(console: Console, scene: Stage, client: Client) -> None:
    """As anyone could: from public documents and what helpers publish."""
    spent = []
    for helper in scene.helpers:
        found = trail.verify(client.receipts(helper.name), scene.origin, helper.name, scene.documents)
        spent.append(found.spent()[scene.document.digest.hex()].epsilon)
    console.print(
        f"The receipts of all {len(spent)} helpers verify: a source has cost at most ε = {max(spent):.3g} "
        f"of {scene.document.budget.epsilon:g}.\n"
    )


def _one_person(console: Console, measured: Workflow) -> None:
    table = _table("What each party sees of one person who bought", "party", "can read", "bought", "euros")
    for row in sights.one_person(measured):
        table.add_row(*row)
    console.print(table)


def _attacks(console: Console, trained: Workflow) -> None:
    shares = [helper.opened.shares for helper in trained.helpers]
    labels = field.to_signed(field.total(np.stack(shares)))[:, 1]  # the truth, which no party has
    truth = labels == 1
    first, last = prototype.masks(labels, prototype.generator(2021))
    title = "\nHelpers attack: their advantage over guessing"
    table = _table(title, "attack", "paper's prototype", "ours")
    signs = (
        advantage(masks.by_sign(last), truth),
        advantage(masks.by_sign(masks.as_signed(shares[-1])), truth),
    )
    table.add_row("sign of the last helper's masks", *map(str, signs))
    states = _mersenne(first, truth), _mersenne(masks.as_uniform(shares[0]), truth)
    table.add_row("generator behind helper-0's masks", *states)
    console.print(table)
    console.print("An advantage of 1 reads every label, 0 reads none.\n")


def _mersenne(view: NDArray[np.float64], truth: NDArray[np.bool_]) -> str:
    try:
        return str(advantage(mersenne.read_labels(view) == 1, truth))
    except NotMersenne:
        return "finds no state"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
