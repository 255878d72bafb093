"""What each party can see, for the demo: it opens what is stored with everybody's keys, as nobody could."""

import numpy as np

from maskedlark import workflow
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import Measured
from maskedlark.helper.keyring import Keyring
from maskedlark.simulate.stage import Stage
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports, Selection
from maskedlark.wire import report
from maskedlark.workflow import Workflow

Row = tuple[str, str, str, str]
"""A party, and three things that it sees."""


def opened(scene: Stage, declared: Measure | Model) -> Workflow:
    """All that helpers hold of the stored reports for one purpose."""
    database, now = open_database(f"sqlite:///{scene.folder / 'reports.sqlite'}"), SystemClock().now()
    try:
        selection = Selection(declared.purpose, scene.document.digest, 0, now + 1)
        stored = [each.data for each in Reports(database, SystemClock()).read(selection)]
    finally:
        database.close()
    keys = {}
    for helper in scene.helpers:
        (keys[helper.name],) = Keyring(helper.folder / "keys", helper.name).opening_keys(now).values()
    return workflow.receive(declared, stored, keys, scene.document.payload_size(declared.purpose))


def one_person(measured: Workflow) -> list[Row]:
    """One report to aggregate of somebody who bought: a row a party.

    Whose report it is nobody can tell from it; the demo adds up all shares to find a buyer's.
    """
    totals = field.to_signed(field.total(np.stack([helper.opened.shares for helper in measured.helpers])))
    place = int(np.argmax(totals[:, 1]))
    records, stored = measured.helpers[0].opened, report.decode(measured.reports[place])
    assert isinstance(records, Measured)
    campaigns = records.keys["campaign"]
    campaign = f"campaign {campaigns.entries[campaigns.codes[place]]}"
    _, bought, euros = map(str, totals[place])
    public, sealed = report.decode_public(stored.public), stored.payloads[0][1]
    rows = [
        ("browser", campaign, bought, euros),
        ("ad server", f"id {public.id.hex()[:8]}…", f"{sealed[:8].hex()}…", f"{len(sealed)} sealed bytes"),
    ]
    for helper in measured.helpers:
        _, mine, yours = map(str, helper.opened.shares[place])
        rows.append((helper.opener.helper, campaign, mine, yours))
    return [*rows, ("all helpers", "if they colluded", bought, euros)]
