"""The demo's campaign report, private beside true; and the receipts of all that was asked."""

from rich.console import Console

from maskedlark.adserver.client import Client
from maskedlark.cli.acts.people import People
from maskedlark.cli.acts.tables import table
from maskedlark.privacy import trail
from maskedlark.simulate.stage import Stage

NOISE = 1.5


def act(console: Console, client: Client, crowd: People) -> None:
    """Ask for the report, and show the truth, which nobody has, beside it."""
    report = client.query(["bought", "euros"], by="campaign", noise=NOISE)
    title = "The campaign report: private beside true, which nobody has"
    shown = table(title, "campaign", "buyers", "95 % interval", "true", "euros", "95 % interval", "true")
    for (campaign,), (bought, euros) in report.rows:
        mine = crowd.campaign == campaign
        cells = [
            *(str(bought.estimate), f"{bought.low} … {bought.high}", str(crowd.bought[mine].sum())),
            *(str(euros.estimate), f"{euros.low} … {euros.high}", str(crowd.euros[mine].sum())),
        ]
        shown.add_row(str(campaign), *cells)
    console.print(shown)
    hidden = sorted(set(crowd.campaign.tolist()) - {str(row.group[0]) for row in report.rows})
    cost = report.balance
    console.print(
        f"Not shown: {', '.join(hidden)}, of fewer than k = {report.k} records. The report cost "
        f"ε = {cost.charged_epsilon:.3g}; {cost.left_epsilon:.3g} is left for any source in it.\n"
    )


def receipts(console: Console, scene: Stage, client: Client) -> None:
    """Add up what all was charged, as anyone could: from public documents and what helpers publish."""
    spent = []
    for helper in scene.helpers:
        found = trail.verify(client.receipts(helper.name), scene.origin, helper.name, scene.documents)
        spent.append(found.spent()[scene.document.digest.hex()])
    epsilon, coalition = max(each.epsilon for each in spent), max(each.coalition for each in spent)
    console.print(
        f"The receipts of all {len(spent)} helpers verify: all of this has cost a source at most "
        f"ε = {epsilon:.3g} of {scene.document.budget.epsilon:g}, and {coalition:.3g} if all helpers but one "
        "joined the ad server.\n"
    )
