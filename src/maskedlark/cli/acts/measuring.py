"""The demo's campaign report, private beside true; and the receipts of all that was asked."""

from rich.console import Console

from maskedlark.adserver.client import Client
from maskedlark.adserver.table import Estimate
from maskedlark.cli.acts.found import Campaign, Charged, Number, Receipts, Report
from maskedlark.cli.acts.people import People
from maskedlark.cli.acts.tables import table
from maskedlark.ledger import trail
from maskedlark.ledger.receipt import (
    Balance,
    ClosedReceipt,
    OpenedReceipt,
    Receipt,
    ReleaseReceipt,
    SealedReceipt,
)
from maskedlark.simulate.cluster import LocalCluster

NOISE = 1.5


def act(console: Console, client: Client, crowd: People) -> Report:
    """Ask for the report, and show the truth, which nobody has, beside it."""
    report = client.query(["bought", "euros"], by="campaign", noise=NOISE)
    rows = [_campaign(str(name), numbers, crowd) for (name,), numbers in report.rows]
    hidden = sorted(set(crowd.campaign.tolist()) - {row.name for row in rows})
    cost = report.balance
    found = Report(
        tuple(rows), tuple(hidden), report.k, report.confidence, cost.charged_epsilon, cost.left_epsilon
    )
    _show(console, found)
    return found


def _campaign(name: str, numbers: tuple[Estimate, ...], crowd: People) -> Campaign:
    mine = crowd.campaign == name
    bought, euros = numbers
    return Campaign(name, _number(bought, crowd.bought[mine].sum()), _number(euros, crowd.euros[mine].sum()))


def _number(private: Estimate, truth: int) -> Number:
    return Number(private.estimate, private.low, private.high, int(truth))


def _show(console: Console, found: Report) -> None:
    title = "The campaign report: private beside true, which nobody has"
    shown = table(title, "campaign", "buyers", "95 % interval", "true", "euros", "95 % interval", "true")
    for row in found.campaigns:
        cells = [
            cell
            for each in (row.buyers, row.euros)
            for cell in (str(each.estimate), f"{each.low} … {each.high}", str(each.truth))
        ]
        shown.add_row(row.name, *cells)
    console.print(shown)
    console.print(
        f"Not shown: {', '.join(found.hidden)}, of fewer than k = {found.k} records. The report cost "
        f"ε = {found.charged:.3g}; {found.left:.3g} is left for any source in it.\n"
    )


def receipts(console: Console, scene: LocalCluster, client: Client) -> Receipts:
    """Add up what all was charged, as anyone could: from public documents and what helpers publish."""
    trails = [
        trail.verify(client.receipts(helper.name), scene.origin, helper.name, scene.documents)
        for helper in scene.helpers
    ]
    spent = [each.spent()[scene.document.digest.hex()] for each in trails]
    found = Receipts(
        len(spent),
        max(each.epsilon for each in spent),
        max(each.coalition for each in spent),
        scene.document.budget.epsilon,
        scene.document.budget.delta,
        _chain(trails[0].receipts),
    )
    console.print(
        f"The receipts of all {found.helpers} helpers verify: all of this has cost a source at most "
        f"ε = {found.epsilon:.3g} of {found.allowed:g}, and {found.coalition:.3g} if all helpers but one "
        "joined the ad server.\n"
    )
    return found


def _chain(receipts: list[Receipt]) -> tuple[Charged, ...]:
    """Every receipt with what it added to both figures."""
    found, spent, coalition = [], 0.0, 0.0
    for receipt in receipts:
        balance: Balance | None = getattr(receipt, "balance", None)
        before, before_coalition = spent, coalition
        if balance is not None:
            spent, coalition = balance.spent_epsilon, balance.spent_coalition_epsilon
        charged = (spent - before, coalition - before_coalition)
        found.append(Charged(receipt.number, _what(receipt), *charged, spent, coalition))
    return tuple(found)


def _what(receipt: Receipt) -> str:
    match receipt:
        case SealedReceipt():
            return f"{receipt.records} records sealed, to {receipt.purpose}"
        case ReleaseReceipt():
            return f"{receipt.function} answered with {receipt.released.mechanism.capitalize()} noise"
        case OpenedReceipt():
            return f"{receipt.steps} training steps reserved"
        case ClosedReceipt():
            return f"training closed after {receipt.used} steps"
        case _:
            return "receipts lost"
