"""What each party sees of one person, and what helpers learn by attacking their masks.

The demo decrypts the stored reports with all keys, which in production nobody has.
"""

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.audit import attacks, prototype
from maskedlark.audit.attacks import Advantage, advantage
from maskedlark.cli.audits.mask_attacks import read_generator
from maskedlark.cli.demo_steps.people import People
from maskedlark.cli.demo_steps.results import ALL, NO_STATE, Attack, AttackResult, PartyHolding, PartyView
from maskedlark.cli.output import Screen, table
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.declared import Measure, Model
from maskedlark.core.records import AggregateRecords, TrainingRecords
from maskedlark.features import Encoder
from maskedlark.helper.keyring import Keyring
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.storage.engine import open_database
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.hpke import KEY_ID_BYTES
from maskedlark.wire.report import HEAD_BYTES, Opener
from maskedlark.workflow import View, open_reports

Views = tuple[View, ...]
"""What each helper sees of the same reports."""


def opened(cluster: LocalCluster, declared: Measure | Model) -> Views:
    """What each helper holds of the stored reports for one purpose."""
    now = SystemClock().now()
    with closing(open_database(f"sqlite:///{cluster.folder / 'reports.sqlite'}")) as database:
        selection = Selection(declared.purpose, cluster.document.digest, 0, now + 1)
        stored = [each.data for each in Reports(database, SystemClock()).read(selection)]
    layout, terms = cluster.document.layout(declared.purpose), Terms(cluster.document.report_lifetime_s, now)
    openers = [
        Opener(layout, place, Keyring(each.folder / "keys", each.name).opening_keys(now), terms)
        for place, each in enumerate(cluster.helpers)
    ]
    return open_reports(openers, stored)


def run(
    console: Screen, measured: Views, trained: Views, crowd: People, encoder: Encoder
) -> tuple[PartyView, ...]:
    """A row per party: what it can read, and its part of two reports of someone who bought.

    Reports do not reveal their senders. The demo adds up all shares to find a pair that fits this buyer.
    """
    buyer = crowd.first_buyer()
    campaign, features = str(crowd.campaign[buyer]), encoder.encode(crowd.known)[buyer]
    (to_measure,), (to_train,) = measured[0].records.values(), trained[0].records.values()
    assert isinstance(to_measure, AggregateRecords)
    assert isinstance(to_train, TrainingRecords)
    campaigns = to_measure.keys["campaign"]
    same_campaign = np.array([str(each) == campaign for each in campaigns.entries], np.bool_)[campaigns.codes]
    euros_id, euros = _held(measured, 2, same_campaign, int(crowd.euros[buyer]))
    label_id, label = _held(trained, 1, (to_train.features == features).all(axis=1), 1)
    readable = (f"campaign {campaign}", f"features {features.tobytes().hex()}")
    reads = {
        "browser": readable,
        "ad server": (f"report {euros_id}…", f"report {label_id}…"),
        **{view.opener.helper: readable for view in measured},
        ALL: ("if they colluded",),
    }
    views = tuple(
        PartyView(party, words, to_add_up, to_train_on, knows=party in ("browser", ALL))
        for (party, words), to_add_up, to_train_on in zip(reads.items(), euros, label, strict=True)
    )
    columns = ("party", "can read", "euros to add up", "label to train")
    rows = ((view.party, *map("\n".join, (view.reads, view.euros.shown, view.label.shown))) for view in views)
    console.print(table(columns, rows, "What each party sees of one person who bought"))
    return views


def _held(
    views: Views, column: int, candidates: NDArray[np.bool_], value: int
) -> tuple[str, tuple[PartyHolding, ...]]:
    """The id of a matching report, and one of its numbers as each party holds it."""
    shares = np.stack([view.shares[:, column] for view in views])
    totals = field.to_signed(field.total(shares))
    place = int(np.argmax(candidates & (totals == value)))
    total, part = int(totals[place]), views[0].parts[place].tobytes()
    stored = part[HEAD_BYTES + KEY_ID_BYTES :]
    known = PartyHolding((str(total),), f"{total % field.P:016x}")
    sealed = (f"{stored[:6].hex()}…", f"{len(stored)} sealed bytes")
    digits = [f"{int(share):016x}" for share in shares[:, place]]
    masked = (PartyHolding(sealed, stored[:8].hex()), *(PartyHolding((each,), each) for each in digits))
    return part[:4].hex(), (known, *masked, known)


def attack(console: Screen, trained: Views) -> tuple[Attack, ...]:
    """Two attacks of helpers that win against the paper's prototype."""
    labels = attacks.labels(trained)  # No party knows them.
    shares = [view.shares for view in trained]
    truth = labels == 1
    first, last = prototype.masks(labels, prototype.generator(2021))
    signs = (advantage(attacks.by_sign(view), truth) for view in (last, attacks.as_signed(shares[-1])))
    states = (read_generator(view, truth) for view in (first, attacks.as_uniform(shares[0])))
    tried = (
        Attack("sign of the last helper's masks", *map(_won, signs)),
        Attack("generator behind helper-0's masks", *map(_won, states)),
    )
    rows = ((each.name, str(each.prototype or NO_STATE), str(each.ours or NO_STATE)) for each in tried)
    title = "\nHelpers attack: their advantage over guessing"
    console.print(table(("attack", "paper's prototype", "ours"), rows, title))
    console.say("An advantage of 1 reads every label, 0 reads none.")
    return tried


def _won(won: Advantage | None) -> AttackResult | None:
    return None if won is None else AttackResult(won.value, won.error)
