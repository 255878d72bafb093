"""Real processes, really killed: at every stage of a report's way, by schedules that are drawn from seeds.

A schedule that fails says its seed and its steps. `MASKEDLARK_KILLS_SEED=7 pytest …/test_kills.py -k quick`
runs that one (moments inside processes are never quite the same again).
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select

from maskedlark.adserver import receipt_pages
from maskedlark.adserver.requests import Course, Requests
from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.rows import SEALED
from maskedlark.helper.tables import DATASETS
from maskedlark.privacy import trail
from maskedlark.privacy.errors import BudgetExhausted
from maskedlark.privacy.receipt import ReleaseReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.services import Process
from maskedlark.simulate.stage import RunningHelper, Stage, stage
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports, Selection
from maskedlark.web.remote import Remote
from maskedlark.wire import keys
from tests.simulation.kills import CAMPAIGNS, COST, HOLDING, NOISE, Broken, Play, chance

QUESTIONS = 4
"""So many fit into a budget."""
SETTINGS = f"""
keys = ["campaign"]
k = 10
budget = {{epsilon = {QUESTIONS * COST}, delta = 0.0}}
mechanisms = {{aggregate = {{kind = "laplace", noise_floor = {NOISE}}}}}
[values]
number = [0, 1048576]
"""
CHUNK = 8
FAR = 3
"""Laplace noise of scale 0.1 is never so far out, but for once in e³⁰."""
FEWEST, MOST = 6, 10
SCHEDULES, STAGES = 50, 10
QUICK = 80
"""Seven kills, one at every stage."""
SEED = "MASKEDLARK_KILLS_SEED"
TOTALS: Counter[str] = Counter()


class Step(NamedTuple):
    """A call of `Play`."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"play.{self.name}({', '.join(map(repr, self.arguments))})"


def draw(seed: int, helpers: int) -> list[Step]:
    """Steps with 6 to 10 kills: a dataset from its upload to its answers, and what operators do meanwhile."""
    rng = chance(seed)
    while True:
        drawn = _Drawn(rng, f"d{seed}", helpers)
        if FEWEST <= drawn.kills <= MOST:
            return drawn.steps


class _Drawn:
    def __init__(self, rng: Random, name: str, helpers: int) -> None:
        self._rng, self._name, self._helpers = rng, name, helpers
        self.steps: list[Step] = []
        self.kills = 0
        for part in (self._upload, self._send, self._ask):
            self._operators()
            part()

    def _add(self, name: str, *arguments: object, kills: int = 0) -> None:
        self.steps.append(Step(name, arguments))
        self.kills += kills

    def _delay(self, most_s: float) -> float:
        """Often very short: most is done in a few thousandths of a second."""
        return round(most_s * self._rng.random() ** 2, 4)

    def _place(self) -> int:
        return self._rng.randrange(self._helpers)

    def _operators(self) -> None:
        if self._rng.random() < 0.4:
            moment = self._rng.choice(["starting", "writing", "writing", "written", "written"])
            delay_s = self._delay(1.2 if moment == "starting" else 0.02)
            self._add("rotate", self._place(), moment, delay_s, self._rng.random() < 0.5, kills=1)
        if (chosen := self._rng.random()) < 0.15:
            self._add("publish_and_kill", self._delay(0.05), kills=1)
        elif chosen < 0.3:
            self._add("take_service_away", kills=1)

    def _upload(self) -> None:
        count = self._rng.randrange(64, 130)
        kills = [
            (self._rng.randrange(1 + 5 * i, 5 + 5 * i), self._delay(0.02))
            for i in range(self._rng.randint(1, 2))
        ]
        self._add("upload", count, kills, kills=len(kills))
        self._add("freeze", self._name)

    def _send(self) -> None:
        name, rng = self._name, self._rng
        if rng.random() < 0.4:
            part, most = rng.choice([("/chunks/", 8 * self._helpers), ("/seal", self._helpers)])
            number, delay_s = rng.randint(1, most), self._delay(0.02)
            self._add("kill_client", "client", "send", name, part, number, delay_s, kills=1)
            self._add("settle")
            if part == "/seal":
                self._add("send", name)
                return  # All chunks are there already.
        else:
            for _ in range(rng.randint(1, 2)):
                arguments = self._place(), rng.randint(1, 7), rng.random() < 0.3, self._delay(0.05)
                self._add("ingest", name, *arguments, kills=1)
        if rng.random() < 0.5:
            self._add("between_seals", name, self._place(), kills=1)
        else:
            self._add("in_seal", name, self._place(), self._delay(0.04), kills=1)
        self._add("send", name)

    def _ask(self) -> None:
        rng = self._rng
        kinds = ["charge", rng.choice(["plain", "client", "release", "starting"])]
        rng.shuffle(kinds)
        for kind in kinds:
            getattr(self, f"_ask_{kind}")()

    def _ask_plain(self) -> None:
        self._add("ask", self._name)

    def _ask_charge(self) -> None:
        self._add("ask_and_kill", self._name, self._place(), kills=1)

    def _ask_client(self) -> None:
        number, delay_s = self._rng.randint(1, self._helpers), self._delay(0.02)
        self._add("kill_client", "client", "ask", self._name, "/v1/releases", number, delay_s, kills=1)
        self._add("resume", self._name)

    def _ask_release(self) -> None:
        self._add("ask_and_kill_soon", self._name, self._place(), self._delay(0.03), kills=1)

    def _ask_starting(self) -> None:
        self._add("kill_while_starting", self._place(), round(0.4 + self._rng.random(), 3), kills=2)
        self._add("ask", self._name)


@dataclass
class Invariants:
    """What was seen so far, with which the present must agree."""

    play: Play
    _chains: dict[str, list[bytes]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def _stage(self) -> Stage:
        return self.play.stage

    def after_kill(self, process: Process) -> None:
        """What a dead ad server has acknowledged, it has."""
        if process is self._stage.adserver:
            self._stored()

    def after_step(self) -> None:
        self._stored()
        self._receipts()
        self._keys()
        self._sealed()

    def at_the_end(self, name: str) -> None:
        self._swept()
        self._repeated()
        self._counted(name)
        self._spent(name)
        self._receipts()

    def _stored(self) -> None:
        """Every acknowledged report, once, with its bytes."""
        acknowledged = set(self.play.acknowledged)
        database = open_database(f"sqlite:///{self._stage.folder / 'reports.sqlite'}")
        try:
            reports = Reports(database, SystemClock())
            selections = [
                Selection(Purpose.AGGREGATE, each.digest, 0, 1 << 40) for each in self._stage.documents
            ]
            found = [each for selection in selections for each in reports.read(selection)]
        finally:
            database.close()
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
                chain = list(receipt_pages.fetch(remote, self._stage.origin))
            found = trail.verify(chain, self._stage.origin, helper.name, self._stage.documents)
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
                message = remote.get("/v1/keys", {"helper": helper.name})
            published = keys.verify(message, helper.name, helper.identity.verifying)
            secrets = Keyring(helper.folder / "keys", helper.name).opening_keys(SystemClock().now())
            if {each.key.key_id for each in published.keys} - secrets.keys():
                raise Broken(f"{helper.name} has published a key whose secret it does not have")

    def _sealed(self) -> None:
        """At every helper the same datasets, each report in one of them, whose shares are its value."""
        held = [_sealed(helper, self._stage) for helper in self._stage.helpers]
        names = set(held[0]).union(*held)
        for each in self.play.client.datasets():
            if each.state == SEALED and not all(each.name in one for one in held):
                raise Broken(f"{each.name} is sealed, and not at every helper")
        for name in names:
            sealed = [one[name] for one in held if name in one]
            if any(one.members != sealed[0].members for one in sealed):
                raise Broken(f"helpers hold other reports in {name}")
            if {*sealed[0].members} != self.play.frozen[name]:
                raise Broken(f"{name} holds other reports than were frozen")
            if len(sealed) == len(held):
                self._values(name, sealed)
        members = Counter(name for one in held[:1] for each in one.values() for name in each.members)
        if members and max(members.values()) > 1:
            raise Broken("a report is in two datasets")

    def _swept(self) -> None:
        """Nothing is left of chunks that were opened: only the columns."""
        for helper in self._stage.helpers:
            for folder in (helper.folder / "columns").glob("[0-9]*"):
                if len(names := [each.name for each in folder.iterdir()]) != 1:
                    raise Broken(f"{helper.name} has left {sorted(names)} of a sealed dataset")

    def _values(self, name: str, sealed: list["Sealed"]) -> None:
        combined = sharing.combine([one.shares for one in sealed])
        for member, (count, value) in zip(sealed[0].members, combined.tolist(), strict=True):
            if (count, value) != (1, self.play.made[member].value):
                raise Broken(f"a report of {name} is counted {count} times, with the value {value}")

    def _repeated(self) -> None:
        """The same question gets the same bytes: those that the ad server keeps, and those of before."""
        database = open_database(f"sqlite:///{self._stage.folder / 'reports.sqlite'}")
        try:
            requests = Requests(database)
            for name in self.play.asked:
                kept, answers = requests.get(name), requests.answers(name)
                if kept is None or kept.state is not Course.ANSWERED:
                    raise Broken(f"request {name} is not kept as answered")
                for place, helper in enumerate(self._stage.helpers):
                    data = self._stage.signed(place).post("/v1/releases", kept.body, "application/json")
                    before = self._answers.setdefault((helper.name, name), data)
                    if not data == before == answers[helper.name]:
                        raise Broken(f"{helper.name} answers request {name} with other bytes")
        finally:
            database.close()

    def _counted(self, name: str) -> None:
        """Every answer is what it should be, but for little noise."""
        members = [self.play.made[each].campaign for each in self.play.frozen[name]]
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


class Sealed(NamedTuple):
    """What one helper holds of a dataset."""

    members: list[bytes]
    shares: Any


def _sealed(helper: RunningHelper, made: Stage) -> dict[str, Sealed]:
    """All sealed datasets of a helper by name, from its disk: it runs meanwhile, and is not asked."""
    database = open_database(f"sqlite:///{helper.folder / 'database' / 'helper.sqlite'}", make=False)
    try:
        with database.read() as connection:
            rows = connection.execute(select(DATASETS).where(DATASETS.c.state == SEALED)).all()
    finally:
        database.close()
    found = {}
    for row in rows:
        folder, contents = helper.folder / "columns" / str(row.number) / row.folder, row.contents
        records = columns.read_measured(folder, Contents.model_validate_json(contents), made.document.measure)
        found[row.name] = Sealed([each.tobytes() for each in records.ids], records.shares)
    return found


@contextmanager
def playing(folder: Path, helpers: int, workers: int) -> Iterator[tuple[Play, Invariants]]:
    """A stage, helpers of which know the sums that wait, and many small chunks."""
    settings = f'functions = ["tests.simulation.kills"]\nworkers = {workers}\n'
    holding = folder / "holding"
    holding.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        patch.setenv(HOLDING, str(holding))
        patch.setattr("maskedlark.adserver.datasets.PARTS", CHUNK)
        with stage(folder, SETTINGS, SystemRandomness(), helpers, helper_settings=settings) as made:
            play = Play(made, SETTINGS, holding)
            try:
                yield play, _watching(play)
            finally:
                play.close()


def _watching(play: Play) -> Invariants:
    invariants = Invariants(play)
    play.after_kill = invariants.after_kill
    return invariants


def run(play: Play, invariants: Invariants, seed: int) -> None:
    """One schedule. What goes wrong says how to see it again."""
    steps = draw(seed, len(play.stage.helpers))
    before, began = play.kills.total(), time.monotonic()
    done: list[str] = []
    try:
        for step in steps:
            done.append(f"{time.monotonic() - began:6.2f} {step}")
            if step.name in ("rotate", "publish_and_kill"):
                play.bring_service_back()
            if step.name != "take_service_away" or not play.is_service_away:
                getattr(play, step.name)(*step.arguments)
            if step.name not in ("ingest", "between_seals", "in_seal", "kill_client"):
                invariants.after_step()
        play.bring_service_back()
        invariants.at_the_end(f"d{seed}")
    except Exception as error:
        raise Broken(f"{SEED}={seed} helpers={len(play.stage.helpers)}\n" + "\n".join(done)) from error
    assert play.kills.total() - before >= FEWEST - 2, steps


def test_a_quick_schedule(tmp_path, capsys):
    with playing(tmp_path, 2, 1) as (play, invariants):
        run(play, invariants, int(os.environ.get(SEED, QUICK)))
    with capsys.disabled():
        print(f" kills {dict(play.kills)}", end=" ")


@pytest.mark.long
@pytest.mark.parametrize("number", range(STAGES))
def test_many_schedules(number, tmp_path, capsys):
    each = SCHEDULES // STAGES
    began = time.monotonic()
    with playing(tmp_path, 3 if number % 4 == 3 else 2, 1 + number % 2) as (play, invariants):
        for seed in range(100 + number * each, 100 + (number + 1) * each):
            run(play, invariants, seed)
    taken = (time.monotonic() - began) / each
    TOTALS.update(play.kills, schedules=each)
    with capsys.disabled():
        print(f" {each} schedules of {taken:.1f} s, so far {dict(TOTALS)}", end=" ")
