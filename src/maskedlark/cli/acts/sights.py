"""What each party sees of one person. The demo opens what is stored with everybody's keys: nobody could."""

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.cli.acts.found import ALL, Held, Sight
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
from maskedlark.wire.report import Opener
from maskedlark.workflow import View, open_reports


def opened(scene: Stage, declared: Measure | Model) -> tuple[View, ...]:
    """All that helpers hold of the stored reports for one purpose."""
    database, now = open_database(f"sqlite:///{scene.folder / 'reports.sqlite'}"), SystemClock().now()
    try:
        selection = Selection(declared.purpose, scene.document.digest, 0, now + 1)
        stored = [each.data for each in Reports(database, SystemClock()).read(selection)]
    finally:
        database.close()
    size, openers = scene.document.payload_size(declared.purpose), []
    for place, helper in enumerate(scene.helpers):
        keys = Keyring(helper.folder / "keys", helper.name).opening_keys(now)
        openers.append(Opener(helper.name, place, keys, declared, size))
    return open_reports(openers, stored)


def act(
    console: Console,
    measured: tuple[View, ...],
    trained: tuple[View, ...],
    crowd: People,
    encoder: Encoder,
) -> tuple[Sight, ...]:
    """A row a party: what it can read, and its part of two reports of somebody who bought.

    Whose reports they are nobody can tell from them. The demo adds up all shares to find a pair that the
    first buyer may have sent.
    """
    buyer = crowd.first_buyer()
    campaign, features = str(crowd.campaign[buyer]), encoder.encode(crowd.known)[buyer]
    euros = _Parts(measured, 2, _campaigns(measured) == campaign, int(crowd.euros[buyer]))
    label = _Parts(trained, 1, (_features(trained) == features).all(axis=1), 1)
    readable = (f"campaign {campaign}", f"features {features.tobytes().hex()}")
    ids = (f"report {euros.id}…", f"report {label.id}…")
    found = (
        Sight("browser", readable, euros.total, label.total, knows=True),
        Sight("ad server", ids, euros.sealed, label.sealed),
        *(
            Sight(view.opener.helper, readable, euros.share(place), label.share(place))
            for place, view in enumerate(measured)
        ),
        Sight(ALL, ("if they colluded",), euros.total, label.total, knows=True),
    )
    title = "What each party sees of one person who bought"
    shown = table(title, "party", "can read", "euros to add up", "label to train")
    for sight in found:
        cells = (sight.reads, sight.euros.shown, sight.label.shown)
        shown.add_row(sight.party, *("\n".join(lines) for lines in cells))
    console.print(shown)
    return found


class _Parts:
    """One number of one report, as each party has it."""

    def __init__(
        self, views: tuple[View, ...], column: int, candidates: NDArray[np.bool_], value: int
    ) -> None:
        self._shares = [view.shares[:, column] for view in views]
        totals = field.to_signed(field.total(np.stack(self._shares)))
        self._place = int(np.argmax(candidates & (totals == value)))
        total = int(totals[self._place])
        self.total = Held((str(total),), f"{total % field.P:016x}")
        stored = views[0].opener.address(views[0].parts[self._place])
        self.id = stored.public.id.hex()[:8]
        payload = stored.sealed
        self.sealed = Held((f"{payload[:6].hex()}…", f"{len(payload)} sealed bytes"), payload[:8].hex())

    def share(self, helper: int) -> Held:
        """What a helper has of it."""
        found = f"{int(self._shares[helper][self._place]):016x}"
        return Held((found,), found)


def _campaigns(measured: tuple[View, ...]) -> NDArray[np.str_]:
    (records,) = measured[0].records.values()
    assert isinstance(records, Measured)
    campaigns = records.keys["campaign"]
    return np.array(list(map(str, campaigns.entries)))[campaigns.codes]


def _features(trained: tuple[View, ...]) -> NDArray[np.uint8]:
    (records,) = trained[0].records.values()
    assert isinstance(records, Trained)
    return records.features
