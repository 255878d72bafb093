"""`maskedlark demo`: real services, a small population, and what each party sees of it."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from maskedlark import workflow
from maskedlark.audit import masks, mersenne, prototype
from maskedlark.audit.advantage import advantage
from maskedlark.browser import Outbox, Store
from maskedlark.cli.people import People, people
from maskedlark.cli.stage import DAY_S, ORIGIN, Stage, stage
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import Measured
from maskedlark.errors import NotMersenne
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate import Population, processes
from maskedlark.wire import report
from maskedlark.workflow import Workflow


def demo(
    users: Annotated[int, typer.Option(min=400, max=100_000, help="How many people see an ad.")] = 2000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many helpers share every secret.")] = 2,
) -> None:
    """Follow the reports of a small population through running services, and attack them."""
    console, rng = Console(highlight=False), SystemRandomness()
    crowd = people(users)
    console.print(
        f"\n[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] "
        "Their browsers know; nobody else will see what one of them did.\n"
    )
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), helpers, rng) as scene:
        _declared(console, scene)
        _report(console, scene, crowd)
        measured, trained = _received(scene)
    _one_person(console, measured)
    _campaigns(console, crowd, measured)
    _masked(console, crowd, trained)
    _attacks(console, trained)
    console.print(
        "\nThese answers are exact: k-anonymity, noise and the privacy budget are not part of this version.\n"
    )


def _declared(console: Console, scene: Stage) -> None:
    found = scene.document
    names = ", ".join(helper.name for helper in found.helpers)
    console.print(
        f"The parameter service publishes what [bold]{ORIGIN}[/] declares (version {found.version}, digest "
        f"{found.digest.hex()[:8]}…): helpers {names}; k = {found.k}; a source may cost "
        f"ε = {found.budget.epsilon:g}; {found.fake_rate:.0%} fakes.\n"
    )


def _report(console: Console, scene: Stage, crowd: People) -> None:
    """Browsers report over HTTP: the first buyer's for real, step by step, the others' all at once."""
    buyer, start = crowd.first_buyer(), time.perf_counter()
    features = crowd.features[buyer].tobytes()
    sent = scene.one_browser(crowd.campaign[buyer], features, int(crowd.euros[buyer]))
    others = crowd.without(buyer)
    store = Store(scene.folder / "browsers.sqlite")
    seen = SystemClock().now() - 8 * DAY_S - 1
    tag = scene.document.models[0].tag
    with processes(2) as pool:
        population = Population(scene.document, scene.recipients(), seen, scene.rng, pool, progress=True)
        for made in population.measure([others.campaign], [others.bought, others.euros]):
            Outbox(store, ORIGIN).put(made)
        for made in population.train(tag, others.features, [others.bought]):
            Outbox(store, ORIGIN).put(made)
    sent += scene.upload(store)
    store.close()
    console.print(
        f"Browsers waited, faked, split and sealed; the ad server took [bold]{sent} reports[/] over HTTP "
        f"in {time.perf_counter() - start:.0f} s.\n"
    )


def _received(scene: Stage) -> tuple[Workflow, Workflow]:
    """What helpers hold of the stored reports. (Sending datasets to helpers is not part of this version.)"""
    document, views = scene.document, []
    declared: tuple[Measure, Model] = document.measure, next(iter(document.declared_models.values()))
    for each in declared:
        stored = scene.stored(each.purpose, SystemClock())
        views.append(workflow.receive(each, stored, scene.opening, document.payload_size(each.purpose)))
    return views[0], views[1]


def _one_person(console: Console, measured: Workflow) -> None:
    """Whose report it is nobody can tell from it; the demo adds up all shares to find it."""
    totals = field.to_signed(field.total(np.stack([helper.opened.shares for helper in measured.helpers])))
    place = int(np.argmax(totals[:, 1]))  # the first stored report of somebody who bought
    opened, stored = measured.helpers[0].opened, report.decode(measured.reports[place])
    assert isinstance(opened, Measured)
    campaigns = opened.keys["campaign"]
    campaign = f"campaign {campaigns.entries[campaigns.codes[place]]}"
    table = _table("What each party sees of one person who bought", "party", "can read", "bought", "euros")
    _, bought, euros = totals[place]
    table.add_row("browser", campaign, str(bought), str(euros))
    public, sealed = report.decode_public(stored.public), stored.payloads[0][1]
    table.add_row(
        "ad server", f"id {public.id.hex()[:8]}…", f"{sealed[:8].hex()}…", f"{len(sealed)} sealed bytes"
    )
    for helper in measured.helpers:
        _, mine, yours = helper.opened.shares[place]
        table.add_row(helper.opener.helper, campaign, str(mine), str(yours))
    table.add_row("[dim]all helpers[/]", "[dim]if they colluded[/]", str(bought), str(euros))
    console.print(table)


def _campaigns(console: Console, crowd: People, measured: Workflow) -> None:
    answers = measured.sums(by=["campaign"])
    _, noise = measured.helpers[0].sums(["campaign"])
    title = "\nThe campaign report: shares are noise, their sum is true"
    table = _table(title, "campaign", "helper-0's euros", "sum", "true", "buyers", "true")
    names = np.array(crowd.campaign)
    for row, (group, answer) in zip(noise, answers.items(), strict=True):
        mine = names == group[0]
        found = [row[2], answer["euros"], crowd.euros[mine].sum(), answer["bought"], crowd.bought[mine].sum()]
        table.add_row(str(group[0]), *map(str, found))
    console.print(table)


def _masked(console: Console, crowd: People, trained: Workflow) -> None:
    answer = trained.masked_sum(lambda features, label: features.astype(np.int64) * label[:, None])
    truth = (crowd.features * crowd.bought[:, None]).sum(axis=0)
    console.print(
        "\n[bold]A masked sum of f(x, y) = x · y,[/] each feature over the buyers, "
        "from helpers that do not know who bought:"
    )
    console.print(f"  helpers  {answer}\n  truth    {truth}")


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
    console.print("An advantage of 1 reads every label, 0 reads none.")


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
