"""`maskedlark demo`: a small population, and what each party sees of it at each stage."""

from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from maskedlark import workflow
from maskedlark.audit import masks, mersenne, prototype
from maskedlark.audit.advantage import advantage
from maskedlark.cli.people import MEASURE, MODEL, People, people
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.errors import NotMersenne
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import report
from maskedlark.workflow import Workflow


def demo(
    users: Annotated[int, typer.Option(min=400, max=100_000, help="How many people see an ad.")] = 2000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many helpers share every secret.")] = 2,
) -> None:
    """Follow the reports of a small population, all parties in memory, and attack them."""
    console = Console(highlight=False)
    crowd, rng, clock = people(users), SystemRandomness(), SystemClock()
    console.print(
        f"\n[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] "
        "Their browsers know; nobody else will see what one of them did.\n"
    )
    with console.status("browsers split and seal; helpers open …"):
        measured = workflow.measure(
            MEASURE, [crowd.campaign], [crowd.bought, crowd.euros], helpers, rng, clock
        )
        trained = workflow.train(MODEL, crowd.features, [crowd.bought], helpers, rng, clock)
    _one_person(console, crowd, measured)
    _campaigns(console, crowd, measured)
    _masked(console, crowd, trained)
    _attacks(console, crowd, trained)
    console.print(
        "\nThese answers are exact: k-anonymity, noise and the privacy budget are not part of this version.\n"
    )


def _one_person(console: Console, crowd: People, measured: Workflow) -> None:
    person = int(np.argmax(crowd.bought))  # the first who bought
    table = _table(f"What each party sees of person {person}", "party", "can read", "bought", "euros")
    campaign = f"campaign {crowd.campaign[person]}"
    table.add_row("browser", campaign, str(crowd.bought[person]), str(crowd.euros[person]))
    stored = report.decode(measured.reports[person])
    public, sealed = report.decode_public(stored.public), stored.payloads[0][1]
    table.add_row(
        "ad server", f"id {public.id.hex()[:8]}…", f"{sealed[:8].hex()}…", f"{len(sealed)} sealed bytes"
    )
    for helper in measured.helpers:
        _, bought, euros = helper.opened.shares[person]
        table.add_row(helper.opener.helper, campaign, str(bought), str(euros))
    total = field.to_signed(
        field.total(np.stack([helper.opened.shares[person] for helper in measured.helpers]))
    )
    table.add_row("[dim]all helpers[/]", "[dim]if they colluded[/]", str(total[1]), str(total[2]))
    console.print(table)


def _campaigns(console: Console, crowd: People, measured: Workflow) -> None:
    answers = measured.sums(by=["campaign"])
    _, noise = measured.helpers[0].sums(["campaign"])
    title = "\nThe campaign report: shares are noise, their sum is true"
    table = _table(title, "campaign", "helper-0's euros", "sum", "true", "buyers", "true")
    names = np.array(crowd.campaign)
    for row, (group, answer) in zip(noise, answers.items(), strict=True):
        mine = names == group[0]
        table.add_row(
            str(group[0]),
            str(row[2]),
            str(answer["euros"]),
            str(crowd.euros[mine].sum()),
            str(answer["bought"]),
            str(crowd.bought[mine].sum()),
        )
    console.print(table)


def _masked(console: Console, crowd: People, trained: Workflow) -> None:
    answer = trained.masked_sum(lambda features, label: features.astype(np.int64) * label[:, None])
    truth = (crowd.features * crowd.bought[:, None]).sum(axis=0)
    console.print(
        "\n[bold]A masked sum of f(x, y) = x · y,[/] each feature over the buyers, "
        "from helpers that do not know who bought:"
    )
    console.print(f"  helpers  {answer}\n  truth    {truth}")


def _attacks(console: Console, crowd: People, trained: Workflow) -> None:
    truth = crowd.bought == 1
    first, last = prototype.masks(crowd.bought, prototype.generator(2021))
    shares = [helper.opened.shares for helper in trained.helpers]
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
