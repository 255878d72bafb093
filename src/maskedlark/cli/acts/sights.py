"""What each party sees of one person. The demo opens what is stored with everybody's keys: nobody could."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from maskedlark import workflow
from maskedlark.cli.acts.people import People
from maskedlark.cli.acts.tables import table
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import Measured, Trained
from maskedlark.features import Encoder
from maskedlark.helper.keyring import Keyring
from maskedlark.simulate.stage import Stage
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports, Selection
from maskedlark.wire import report
from maskedlark.workflow import Workflow


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


def act(console: Console, measured: Workflow, trained: Workflow, crowd: People, encoder: Encoder) -> None:
    """A row a party: what it can read, and its part of two reports of somebody who bought.

    Whose reports they are nobody can tell from them. The demo adds up all shares to find a pair that the
    first buyer may have sent.
    """
    buyer = crowd.first_buyer()
    campaign, features = str(crowd.campaign[buyer]), encoder.encode(crowd.known)[buyer]
    adding = _Sight(measured, 2, _campaigns(measured) == campaign, int(crowd.euros[buyer]))
    training = _Sight(trained, 1, (_features(trained) == features).all(axis=1), 1)
    title = "What each party sees of one person who bought"
    shown = table(title, "party", "can read", "euros to add up", "label to train")
    readable = f"campaign {campaign}\nfeatures {features.tobytes().hex()}"
    shown.add_row("browser", readable, adding.total, training.total)
    shown.add_row("ad server", f"report {adding.id}…\nreport {training.id}…", adding.sealed, training.sealed)
    for place, helper in enumerate(measured.helpers):
        shown.add_row(helper.opener.helper, readable, adding.share(place), training.share(place))
    shown.add_row("all helpers", "if they colluded", adding.total, training.total)
    console.print(shown)


class _Sight:
    """One number of one report, as each party has it."""

    def __init__(self, way: Workflow, column: int, candidates: NDArray[np.bool_], value: int) -> None:
        self._shares = [helper.opened.shares[:, column] for helper in way.helpers]
        totals = field.to_signed(field.total(np.stack(self._shares)))
        self._place = int(np.argmax(candidates & (totals == value)))
        self.total = str(totals[self._place])
        stored = report.decode(way.reports[self._place])
        self.id = report.decode_public(stored.public).id.hex()[:8]
        payload = stored.payloads[0][1]
        self.sealed = f"{payload[:6].hex()}…\n{len(payload)} sealed bytes"

    def share(self, helper: int) -> str:
        """What a helper has of it."""
        return f"{int(self._shares[helper][self._place]):016x}"


def _campaigns(measured: Workflow) -> NDArray[np.str_]:
    records = measured.helpers[0].opened
    assert isinstance(records, Measured)
    campaigns = records.keys["campaign"]
    return np.array(list(map(str, campaigns.entries)))[campaigns.codes]


def _features(trained: Workflow) -> NDArray[np.uint8]:
    records = trained.helpers[0].opened
    assert isinstance(records, Trained)
    return records.features
