"""What must hold after every step, and at the end, whoever was killed: checked from outside."""

from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import select

from maskedlark.adserver import config, remote_helper
from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.adserver.requests import Requests, RequestState
from maskedlark.audit.colluding import reading
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.shards import FrozenDataset
from maskedlark.helper.tables import DATASETS, FROZEN
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.simulate.cluster import LocalCluster, RunningHelper
from maskedlark.simulate.services import Process
from maskedlark.storage.engine import Database, open_database
from maskedlark.web.remote import Remote
from maskedlark.wire import keys
from tests.simulation.kills.play import Play
from tests.simulation.kills.reports import CAMPAIGNS
from tests.simulation.kills.waiting import Broken

QUESTIONS = 4
"""So many fit into a budget."""
FAR = 3
"""Laplace noise of scale 0.1 is never so far out, but for once in e³⁰."""


@dataclass
class Invariants:
    """What was seen so far, with which the present must agree."""

    play: Play
    _chains: dict[str, list[bytes]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def _stage(self) -> LocalCluster:
        return self.play.stage

    def _database(self) -> Database:
        """The ad server's: it runs meanwhile, and is not asked."""
        return open_database(config.read(self._stage.config).database)

    def after_kill(self, process: Process) -> None:
        """What a dead ad server has acknowledged, it has."""
        if process is self._stage.adserver:
            self._stored()

    def after_step(self) -> None:
        self._stored()
        self._receipts()
        self._keys()
        self._frozen()

    def at_the_end(self, name: str) -> None:
        self._swept()
        self._published(name)
        self._repeated()
        self._counted(name)
        self._spent(name)
        self._receipts()

    def _stored(self) -> None:
        """Every acknowledged report, once, with its bytes."""
        acknowledged = set(self.play.acknowledged)
        with closing(self._database()) as database:
            reports = Reports(database, SystemClock())
            selections = [
                Selection(Purpose.AGGREGATE, each.digest, 0, 1 << 40) for each in self._stage.documents
            ]
            found = [each for selection in selections for each in reports.read(selection)]
        stored = {each.id: each.data for each in found}
        if len(stored) < len(found):
            raise Broken("a report is stored twice")
        if not acknowledged <= stored.keys():
            raise Broken(f"{len(acknowledged - stored.keys())} acknowledged reports are not stored")
        if any(self.play.made[name].data != data for name, data in stored.items()):
            raise Broken("a report is stored with other bytes")

    def _receipts(self) -> None:
        """Verified as anyone would; what was seen stays; every question was charged once, and no other."""
        for helper in self._stage.helpers:
            with Remote(helper.process.address) as remote:
                chain = list(remote_helper.fetch_receipts(remote, self._stage.origin))
            found = receipt_verification.verify(chain, self._stage.origin, helper.name, self._stage.documents)
            encoded, before = [each.encode() for each in chain], self._chains.get(helper.name, [])
            if encoded[: len(before)] != before:
                raise Broken(f"{helper.name} has changed or lost receipts")
            self._chains[helper.name] = encoded
            charged = Counter(each.request for each in found.receipts if isinstance(each, ReleaseReceipt))
            if charged != Counter(self.play.asked.keys()):
                raise Broken(f"{helper.name} has charged {charged}, asked was {self.play.asked}")
            kept = [each.encode() for each in self.play.client.receipts(helper.name)]
            if encoded[: len(kept)] != kept:
                raise Broken(f"the receipts that are kept of {helper.name} are not those that it shows")

    def _keys(self) -> None:
        """Whatever browsers seal to, somebody can open."""
        if self.play.is_service_away:
            return
        for helper in self._stage.helpers:
            with Remote(self._stage.service.address) as remote:
                message = remote.get("/v2/keys", {"helper": helper.name})
            published = keys.verify(message, helper.name, helper.identity.verifying)
            secrets = Keyring(helper.folder / "keys", helper.name).opening_keys(SystemClock().now())
            if {each.key.key_id for each in published.keys} - secrets.keys():
                raise Broken(f"{helper.name} has published a key whose secret it does not have")

    def _frozen(self) -> None:
        """At every helper the same datasets, each report in one of them, whose shares are its value."""
        held = [_frozen(helper, self._stage) for helper in self._stage.helpers]
        names = set(held[0]).union(*held)
        for each in self.play.client.datasets():
            if each.state == FROZEN and not all(each.name in one for one in held):
                raise Broken(f"{each.name} is frozen, and not at every helper")
        for name in names:
            frozen = [one[name] for one in held if name in one]
            if any(one.members != frozen[0].members for one in frozen):
                raise Broken(f"helpers hold other reports in {name}")
            if {*frozen[0].members} != self.play.valid(self.play.selected[name]):
                raise Broken(f"{name} holds other reports than were selected and are valid")
            if len(frozen) == len(held):
                self._values(name, frozen)
        members = Counter(name for one in held[:1] for each in one.values() for name in each.members)
        if members and max(members.values()) > 1:
            raise Broken("a report is in two datasets")

    def _published(self, name: str) -> None:
        """Every helper has published numbers of every report, forged ones too: else nothing was compared."""
        for place, helper in enumerate(self._stage.helpers):
            if not self.play.selected[name] <= self.play.published.of(place):
                raise Broken(f"{helper.name} has frozen reports that it published no numbers of")

    def _swept(self) -> None:
        """Nothing is left of chunks that were opened: only the columns."""
        for helper in self._stage.helpers:
            for folder in (helper.folder / "columns").glob("[0-9]*"):
                if len(names := [each.name for each in folder.iterdir()]) != 1:
                    raise Broken(f"{helper.name} has left {sorted(names)} of a frozen dataset")

    def _values(self, name: str, frozen: list["Frozen"]) -> None:
        combined = sharing.combine([one.shares for one in frozen])
        for member, (count, value) in zip(frozen[0].members, combined.tolist(), strict=True):
            if (count, value) != (1, self.play.made[member].value):
                raise Broken(f"a report of {name} is counted {count} times, with the value {value}")

    def _repeated(self) -> None:
        """The same question gets the same bytes: those that the ad server keeps, and those of before."""
        with closing(self._database()) as database:
            requests = Requests(database)
            for name in self.play.asked:
                kept, answers = requests.get(name), requests.answers(name)
                if kept.state != RequestState.ANSWERED:
                    raise Broken(f"request {name} is not kept as answered")
                for place, helper in enumerate(self._stage.helpers):
                    data = self._stage.signed(place).post("/v2/releases", kept.body, "application/json")
                    before = self._answers.setdefault((helper.name, name), data)
                    if not data == before == answers[helper.name]:
                        raise Broken(f"{helper.name} answers request {name} with other bytes")

    def _counted(self, name: str) -> None:
        """Every answer is what it should be, but for little noise."""
        valid = self.play.valid(self.play.selected[name])
        members = [self.play.made[each].campaign for each in valid]
        truth = {(campaign,): members.count(campaign) for campaign in CAMPAIGNS}
        for request in (each for each, dataset in self.play.asked.items() if dataset == name):
            table = self.play.answers[request].tables[0]
            found = dict(zip(table.rows, table.columns[0][:, 0].tolist(), strict=True))
            far = FAR * len(self._stage.helpers)
            if found.keys() != truth.keys() or any(abs(found[row] - truth[row]) > far for row in truth):
                raise Broken(f"{name} was counted as {found}, and is {truth}")

    def _spent(self, name: str) -> None:
        """What is left of a budget can be asked for, and not a question more."""
        with suppress(BudgetExhausted):
            while [*self.play.asked.values()].count(name) <= QUESTIONS:
                self.play.ask(name)
        if (answered := [*self.play.asked.values()].count(name)) != QUESTIONS:
            raise Broken(f"{answered} questions about {name} were answered, the budget is for {QUESTIONS}")


class Frozen(NamedTuple):
    """What one helper holds of a dataset."""

    members: list[bytes]
    shares: Any


def _frozen(helper: RunningHelper, made: LocalCluster) -> dict[str, Frozen]:
    """All frozen datasets of a helper by name, from its disk: it runs meanwhile, and is not asked."""
    with reading(helper.folder) as connection:
        rows = connection.execute(select(DATASETS).where(DATASETS.c.state == FROZEN)).all()
    found = {}
    for row in rows:
        files = LocalFiles(helper.folder / "columns" / str(row.number) / row.folder)
        contents = Contents.model_validate_json(row.contents)
        own = row.digest, made.document, Purpose.AGGREGATE, row.expires, files, contents
        records = FrozenDataset(*own).records(None)
        found[row.name] = Frozen([each.tobytes() for each in records.ids], records.shares)
    return found
