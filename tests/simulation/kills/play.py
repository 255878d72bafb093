"""A report's whole way, with a kill at every stage of it, and all that is known of it from outside.

What was cut off is tried again with the same bytes, as those who use the services would.
"""

import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

from sqlalchemy import func, select

from maskedlark.adserver.combining import Answered
from maskedlark.audit.colluding import reading
from maskedlark.ledger.rows import RECEIPTS
from maskedlark.simulate.cluster import LocalCluster, RunningHelper
from tests.integration.waiting import next_second
from tests.simulation.kills import clients
from tests.simulation.kills.clients import HERE, Trap
from tests.simulation.kills.held import BY_CAMPAIGN, NOISE, Held
from tests.simulation.kills.operators import Operators
from tests.simulation.kills.reports import Reports
from tests.simulation.kills.waiting import PATIENCE_S, Broken, wait_until


class Play(Reports, Operators):
    """Every stage of a report's way."""

    def __init__(self, made: LocalCluster, settings: str, holding: Path) -> None:
        super().__init__(made, settings)
        self._holding = holding
        self.selected: dict[str, frozenset[bytes]] = {}
        """The ids that were acknowledged in the time of each dataset, by its name."""
        self.asked: dict[str, str] = {}
        """Requests that were answered, and over which dataset."""
        self.answers: dict[str, Answered] = {}

    # The ad server measures.

    def select(self, name: str) -> None:
        """What is in no dataset yet. All of it is of one document, which may not be the newest any more."""
        left = self.acknowledged.difference(*self.selected.values())
        (parameters,) = {self.made[each].parameters for each in left}
        self.client.select(name, end=next_second(), parameters=parameters)
        self.selected[name] = frozenset(left)

    def ingest(self, name: str, place: int, number: int, answers: bool, delay_s: float) -> None:
        """Whoever sends this next meets a helper that dies near its n-th chunk."""
        self.trap_soon("ingest", f"/{name}/chunks/", place, answers, number, delay_s)

    def in_checks(self, place: int, number: int, answers: bool, delay_s: float) -> None:
        """A helper dies near its n-th message about checks: its own numbers, or those of the others."""
        self.trap_soon("checks", "/checks?", place, answers, number, delay_s)

    def between_freezes(self, name: str, place: int) -> None:
        """The first helper has frozen; before another is asked to, one of them is dead."""
        first, process = self.stage.helpers[0].process, self.stage.helpers[place].process
        self._traps.append(
            Trap(f"/{name}/freeze", first.address, True, 1, lambda: self.kill("freezing", process))
        )

    def in_freeze(self, name: str, place: int, delay_s: float) -> None:
        """A helper dies while it freezes."""
        self.trap_soon("freezing", f"/{name}/freeze", place, False, 1, delay_s)

    def send(self, name: str) -> None:
        sent, selected = self.client.send(name), self.selected[name]
        if sent.records != len(valid := self.valid(selected)):
            raise Broken(f"{name} has {sent.records} records of {len(valid)} that are valid")
        refused = {"NotValid": len(selected) - len(valid)} if selected != valid else {}
        if any(found != refused for found in self.client.refusals(name).values()):
            raise Broken(f"{name} is said to lack {self.client.refusals(name)}, and {refused} were forged")
        self._used |= {self.made[each].parameters for each in self.selected[name]}
        self.settle()

    def in_abort(self, name: str, place: int, answers: bool, delay_s: float) -> None:
        """A helper dies while a dataset is taken back from it, or when it has said that it is."""
        self.trap_soon("abort", f"/{name}?", place, answers, 1, delay_s)

    def abort(self, name: str) -> None:
        """Take it back; its reports are free, and so is its name."""
        self.client.abort(name)
        del self.selected[name]
        self.settle()

    def ask(self, name: str) -> None:
        self._show(self.client.ask(Held(), BY_CAMPAIGN, [name], NOISE), name)

    def ask_and_kill(self, name: str, place: int) -> None:
        """A helper dies when it has charged and not answered. Nobody asks anew: the client tries again."""
        helper = self.stage.helpers[place]
        wanted, before = self._holding / str(helper.process.pid), _charges(helper)
        wanted.touch()
        asking = self._workers.submit(self.client.ask, Held(), BY_CAMPAIGN, [name], NOISE)
        wait_until(lambda: wanted.with_suffix(".held").exists() or asking.done())
        self.kill("charge", helper.process)
        if _charges(helper) != before + 1:
            raise Broken(f"{helper.name} computed a share before its charge was durable")
        self._show(asking.result(PATIENCE_S), name)
        self.settle()

    def ask_and_kill_soon(self, name: str, place: int, delay_s: float) -> None:
        """A helper dies at any moment of a release."""
        self.trap_soon("release", "/v2/releases", place, False, 1, delay_s)
        self.ask(name)
        self.settle()

    def kill_while_starting(self, place: int, delay_s: float) -> None:
        """A helper dies with nothing to do, and again while it starts: what it mends is left half done."""
        process = self.stage.helpers[place].process
        self.kill("starting", process)
        time.sleep(delay_s)
        self.kill("starting", process)
        self.settle()

    def _show(self, answered: Answered, name: str) -> None:
        if answered.request in self.asked:
            raise Broken(f"a new question has the id of an old one: {answered.request}")
        self.asked[answered.request] = name
        self.answers[answered.request] = answered

    # Clients die too.

    def kill_client(self, stage: str, action: str, name: str, part: str, number: int, delay_s: float) -> None:
        """A client's process that has got its n-th answer of a kind dies before it does anything with it."""
        arguments = ["-m", clients.__name__, str(self.stage.config), action, name, part, str(number)]
        arguments.append(str(self._published_folder))
        with Popen([sys.executable, *arguments], stdout=PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline() != HERE:
                    raise Broken(f"the client that should {action} {name} ended with {process.wait()}")
                time.sleep(delay_s)
            finally:
                process.kill()
        self.kills[stage] += 1
        self.published.collect()

    def resume(self, name: str) -> None:
        """What a dead client had begun is finished by another, under its id."""
        (pending,) = self.client.pending()
        self.ask(name)
        if [*self.asked][-1] != pending.id or self.client.pending():
            raise Broken(f"request {pending.id} was asked again as another one")


def _charges(helper: RunningHelper) -> int:
    """How many answers a helper has charged, by its disk."""
    query = select(func.count()).select_from(RECEIPTS).where(RECEIPTS.c.request.is_not(None))
    with reading(helper.folder) as connection:
        return connection.scalar(query) or 0
