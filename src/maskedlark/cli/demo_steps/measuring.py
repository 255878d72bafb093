"""The demo's campaign report, private next to true numbers, and the receipts of all charges."""

from itertools import pairwise

from maskedlark.adserver.client import Client
from maskedlark.adserver.table import Estimate
from maskedlark.cli.demo_steps.people import People
from maskedlark.cli.demo_steps.results import Campaign, Charged, Number, Receipts, Report
from maskedlark.cli.output import Screen, table
from maskedlark.ledger import receipt as kinds
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.receipt import Balance, Receipt
from maskedlark.simulate.cluster import LocalCluster

NOISE = 1.5


def run(console: Screen, client: Client, crowd: People) -> Report:
    """Query the report, and show it next to the truth, which no party has."""
    asked = client.query(["bought", "euros"], by="campaign", noise=NOISE)
    rows = tuple(_campaign(str(name), numbers, crowd) for (name,), numbers in asked.rows)
    hidden = tuple(sorted(set(crowd.campaign.tolist()) - {row.name for row in rows}))
    cost = asked.balance
    report = Report(rows, hidden, asked.k, asked.confidence, cost.charged_epsilon, cost.left_epsilon)
    title = "The campaign report: private beside true, which nobody has"
    columns = ("campaign", "buyers", "95 % interval", "true", "euros", "95 % interval", "true")
    cells = ((row.name, *_cells(row.buyers), *_cells(row.euros)) for row in rows)
    console.print(table(columns, cells, title))
    console.say(f"""Not shown: {", ".join(hidden)}, of fewer than k = {report.k} records. The report cost
        ε = {report.charged:.3g} against everybody; {report.left:.3g} is left of the budget of any source in
        it.""")
    return report


def _campaign(name: str, numbers: tuple[Estimate, ...], crowd: People) -> Campaign:
    truths = [int(column[crowd.campaign == name].sum()) for column in (crowd.bought, crowd.euros)]
    both = zip(numbers, truths, strict=True)
    return Campaign(name, *(Number(each.estimate, each.low, each.high, truth) for each, truth in both))


def _cells(number: Number) -> tuple[str, str, str]:
    return str(number.estimate), f"{number.low} … {number.high}", str(number.truth)


def receipts(console: Screen, cluster: LocalCluster, client: Client) -> Receipts:
    """Add up all charges, as anyone can, from public documents and what helpers publish."""
    verified = [
        receipt_verification.verify(
            client.receipts(helper.name), cluster.origin, helper.name, cluster.documents
        )
        for helper in cluster.helpers
    ]
    spent = [each.spent()[cluster.document.digest.hex()] for each in verified]
    budget, chain = cluster.document.budget, _chain(verified[0].receipts)
    epsilon, coalition = max(each.epsilon for each in spent), max(each.coalition for each in spent)
    console.say(f"""The receipts of all {len(spent)} helpers verify: all of this has cost a source at most
        ε = {epsilon:.3g} of {budget.epsilon:g}, and {coalition:.3g} if all helpers but one joined the ad
        server.""")
    return Receipts(len(spent), epsilon, coalition, budget.epsilon, budget.delta, chain)


def _chain(receipts: list[Receipt]) -> tuple[Charged, ...]:
    """Every receipt, with what it added to both ε figures."""
    spent = [(0.0, 0.0)]
    for receipt in receipts:
        balance: Balance | None = getattr(receipt, "balance", None)
        spent.append((balance.spent_epsilon, balance.spent_coalition_epsilon) if balance else spent[-1])
    return tuple(
        Charged(receipt.number, _what(receipt), now[0] - before[0], now[1] - before[1], *now)
        for receipt, (before, now) in zip(receipts, pairwise(spent), strict=True)
    )


def _what(receipt: Receipt) -> str:
    match receipt:
        case kinds.CheckKeyReceipt():
            return "the key that reports are checked with, pinned"
        case kinds.FrozenReceipt():
            return f"{receipt.records} records frozen, to {receipt.purpose}"
        case kinds.ReleaseReceipt():
            return f"{receipt.function} answered with {receipt.charge.mechanism.capitalize()} noise"
        case kinds.OpenedReceipt():
            return f"{receipt.steps} training steps reserved"
        case kinds.ClosedReceipt():
            return f"training closed after {receipt.used_steps} steps"
        case _:
            return "receipts lost"
