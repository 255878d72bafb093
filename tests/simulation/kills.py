"""Kills: what every party does while one of them is ended as a power cut would, and started again.

Services are processes of their own (see `simulate.stage`). What was cut off is tried again with the same
bytes, as those who use the services would. Helpers load `Held` from this module; run as a module, it is a
client that stops at a message, for somebody to kill it there.
"""

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import NamedTuple

import httpx
import numpy as np
from sqlalchemy import func, select

from maskedlark.adserver import config
from maskedlark.adserver.client import Client
from maskedlark.adserver.combining import Answered
from maskedlark.adserver.remote_helper import Retries
from maskedlark.clock import SystemClock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.functions.sums import Sums, SumsQuestion
from maskedlark.parameter_service.draft import draft
from maskedlark.privacy import chain
from maskedlark.privacy.document import Document
from maskedlark.privacy.function import Arguments, Question, Table
from maskedlark.privacy.lines import LINES
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.services import Process
from maskedlark.simulate.stage import RunningHelper, Stage
from maskedlark.storage.engine import open_database
from maskedlark.web import key_file
from maskedlark.web.errors import ServiceAway
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire import batch, report, uploads
from maskedlark.wire.batch import Envelope
from maskedlark.wire.uploads import Verdict
from tests.integration.waiting import next_second

PATIENCE_S = 60.0
"""No assertion is about time; who waits for so long has failed."""
CAMPAIGNS = ("autumn", "spring")
BY_CAMPAIGN = {"values": ["count", "number"], "by": [["campaign"]]}
NOISE = 0.1
"""So little that counts are nearly exact. The numbers are large, and so is their noise: no two are alike."""
COST = 2 / NOISE
"""Of a question: two columns."""
BATCH, SENDERS = 8, 3
HOLDING = "MASKEDLARK_TEST_HOLDING"
HERE = "here\n"
Message = httpx.Request | httpx.Response


class Broken(AssertionError):
    """Something that must hold does not."""


class Held(Sums):
    """Sums that wait while they are told to: whoever is killed then has charged, and has not answered."""

    name = "held-sums"

    def ask(self, document: Document, arguments: Arguments) -> Question:
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuestion)
        return HeldQuestion(document, asked.arguments)


class HeldQuestion(SumsQuestion):
    def share(self, datasets: Sequence[Records], k: int) -> list[Table]:
        wanted = Path(os.environ[HOLDING]) / str(os.getpid())
        if wanted.exists():
            wanted.rename(wanted.with_suffix(".held"))
            threading.Event().wait(PATIENCE_S)
        return super().share(datasets, k)


def connected(path: Path, sent: Callable[[httpx.Request], None], heard: Callable[[httpx.Response], None]):
    """The ad server's own hands, with patience, and somebody who sees every message to a helper."""
    found, clock = config.read(path), SystemClock()
    pins = {found.origin: key_file.public(found.origin_key)}
    parameters = ParameterClient(
        found.parameter_service, key_file.public(found.service_key), Path(found.cache), clock, pins
    )
    retries = Retries(200, 0.05, lambda wait_s: time.sleep(min(wait_s, 0.3)))
    http = httpx.Client(follow_redirects=False, event_hooks={"request": [sent], "response": [heard]})
    database, key = open_database(found.database, make=False), key_file.read(Path(found.key))
    return Client(found.origin, database, key, parameters, clock, SystemRandomness(), http, retries)


@dataclass
class Trap:
    """Something to do once, when the n-th message of a kind passes: a question, or its answer."""

    part: str
    """Of its path."""
    address: str
    """Of the helper; empty for any."""
    answers: bool
    left: int
    act: Callable[[], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, message: Message) -> None:
        url = str(message.url)
        if self.part not in url or not url.startswith(self.address):
            return
        if isinstance(message, httpx.Response) is not self.answers:
            return
        with self._lock:
            self.left -= 1
            fires = self.left == 0
        if fires:
            self.act()


class Made(NamedTuple):
    """A report, and what is true of it. No two have the same value."""

    data: bytes
    parameters: bytes
    campaign: str
    value: int


class Play:
    """A stage on which parties are killed, and all that is known of it from outside."""

    def __init__(self, made: Stage, settings: str, holding: Path) -> None:
        self.stage, self._settings, self._holding = made, settings, holding
        self.kills: Counter[str] = Counter()
        self.made: dict[bytes, Made] = {}
        self.acknowledged: set[bytes] = set()
        self.frozen: dict[str, frozenset[bytes]] = {}
        """The ids that were acknowledged in the time of each dataset, by its name."""
        self.asked: dict[str, str] = {}
        """Requests that were answered, and over which dataset."""
        self.answers: dict[str, Answered] = {}
        self.after_kill: Callable[[Process], None] = lambda process: None
        """Looks at what a dead process left, before it is started again."""
        self._traps: list[Trap] = []
        self._starting: list[Process] = []
        self._killing = threading.Lock()
        self._workers = ThreadPoolExecutor(8)
        self._later: list[Future[None]] = []
        self.is_service_away = False
        self._used: set[bytes] = set()
        """Documents that every party has seen."""
        self.client = connected(made.config, self._see, self._see)

    def close(self) -> None:
        self._workers.shutdown()
        self.client.close()

    # Killing.

    def kill(self, stage: str, process: Process) -> None:
        """End it at once, look at what it left, and begin to start it again."""
        with self._killing:  # Two may want to kill the same one at once.
            workers = _children(process.pid)
            process.kill()
            self.kills[stage] += 1
            try:
                self.after_kill(process)
            finally:
                process.launch()
                if process not in self._starting:  # It may be killed while it starts.
                    self._starting.append(process)
        _check_gone(workers)

    def kill_soon(self, stage: str, process: Process, delay_s: float) -> None:
        def kill() -> None:
            time.sleep(delay_s)
            self.kill(stage, process)

        self._later.append(self._workers.submit(kill))

    def settle(self) -> None:
        """Everything that was to happen has happened, and every service answers again."""
        self._traps.clear()
        while self._later:
            self._later.pop().result(PATIENCE_S)
        while self._starting:
            self._starting.pop().wait()

    def _see(self, message: Message) -> None:
        for trap in list(self._traps):
            trap.see(message)

    # Reports come.

    def upload(self, count: int, kills: Sequence[tuple[int, float]]) -> None:
        """Browsers send at once; each kill is behind so many acknowledged batches, and a delay."""
        names = self._make(count)
        batches = [names[i : i + BATCH] for i in range(0, count, BATCH)]
        before, adserver = len(self.acknowledged), self.stage.adserver
        with ThreadPoolExecutor(SENDERS) as senders:
            sending = [senders.submit(self._send, each) for each in batches]
            for number, delay_s in kills:
                wanted = before + min(number * BATCH, count)
                _wait_until(partial(self._has_acknowledged, wanted))
                time.sleep(delay_s)
                self.kill("upload", adserver)
                self.settle()
            for each in sending:
                each.result(PATIENCE_S)

    def _has_acknowledged(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def _send(self, names: Sequence[bytes]) -> None:
        """The same bytes until they are acknowledged."""
        body, end = uploads.encode_batch([self.made[name].data for name in names]), _end()
        with Remote(self.stage.adserver.address) as remote:
            while True:
                try:
                    data = remote.post("/reports", body, uploads.CONTENT_TYPE)
                    break
                except ServiceAway:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)
        answers = uploads.decode_answers(data, len(names))
        if any(each.outcome is Verdict.REFUSED for each in answers):
            raise Broken(f"a report was refused: {answers}")
        self.acknowledged.update(names)

    def _make(self, count: int) -> list[bytes]:
        document, rng = self.stage.document, self.stage.rng
        campaigns = [CAMPAIGNS[i % 2] for i in range(count)]
        values = np.arange(len(self.made), len(self.made) + count)
        envelope = Envelope(
            document.origin,
            Purpose.AGGREGATE,
            document.digest,
            self.stage.recipients(),
            document.payload_size(Purpose.AGGREGATE),
        )
        encoded = batch.aggregate_columns(document.measure, [campaigns], count)
        secrets = document.measure.lift([values], np.ones(count, np.bool_))
        hours = [hour_of(SystemClock().now())] * count
        made = batch.seal(envelope, encoded, secrets, hours, rng)
        names = [report.decode_public(report.decode(data).public).id for data in made]
        for name, data, campaign, value in zip(names, made, campaigns, values.tolist(), strict=True):
            self.made[name] = Made(data, document.digest, campaign, value)
        return names

    # The ad server measures.

    def freeze(self, name: str) -> None:
        taken = frozenset[bytes]().union(*self.frozen.values())
        self.client.freeze(name, end=next_second())
        self.frozen[name] = frozenset(self.acknowledged - taken)

    def ingest(self, name: str, place: int, number: int, answers: bool, delay_s: float) -> None:
        """Whoever sends this next meets a helper that dies near its n-th chunk."""
        process = self.stage.helpers[place].process
        self._traps.append(
            Trap(
                f"/{name}/chunks/",
                process.address,
                answers,
                number,
                lambda: self.kill_soon("ingest", process, delay_s),
            )
        )

    def between_seals(self, name: str, place: int) -> None:
        """The first helper has sealed; before another is asked to, one of them is dead."""
        first, process = self.stage.helpers[0].process, self.stage.helpers[place].process
        self._traps.append(
            Trap(f"/{name}/seal", first.address, True, 1, lambda: self.kill("sealing", process))
        )

    def in_seal(self, name: str, place: int, delay_s: float) -> None:
        """A helper dies while it seals."""
        process = self.stage.helpers[place].process
        self._traps.append(
            Trap(
                f"/{name}/seal",
                process.address,
                False,
                1,
                lambda: self.kill_soon("sealing", process, delay_s),
            )
        )

    def send(self, name: str) -> None:
        sent = self.client.send(name)
        if sent.records != len(self.frozen[name]):
            raise Broken(f"{name} has {sent.records} records of {len(self.frozen[name])}")
        self._used |= {self.made[each].parameters for each in self.frozen[name]}
        self.settle()

    def ask(self, name: str) -> None:
        self._show(self.client.ask(Held(), BY_CAMPAIGN, [name], NOISE), name)

    def ask_and_kill(self, name: str, place: int) -> None:
        """A helper dies when it has charged and not answered. Nobody asks anew: the client tries again."""
        helper = self.stage.helpers[place]
        wanted, before = self._holding / str(helper.process.pid), _charges(helper)
        wanted.touch()
        asking = self._workers.submit(self.client.ask, Held(), BY_CAMPAIGN, [name], NOISE)
        _wait_until(lambda: wanted.with_suffix(".held").exists() or asking.done())
        self.kill("charge", helper.process)
        if _charges(helper) != before + 1:
            raise Broken(f"{helper.name} computed a share before its charge was durable")
        self._show(asking.result(PATIENCE_S), name)
        self.settle()

    def ask_and_kill_soon(self, name: str, place: int, delay_s: float) -> None:
        """A helper dies at any moment of a release."""
        process = self.stage.helpers[place].process
        self._traps.append(
            Trap(
                "/v1/releases",
                process.address,
                False,
                1,
                lambda: self.kill_soon("release", process, delay_s),
            )
        )
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
        arguments = ["-m", __name__, str(self.stage.config), action, name, part, str(number)]
        with Popen([sys.executable, *arguments], stdout=PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline() != HERE:
                    raise Broken(f"the client that should {action} {name} ended with {process.wait()}")
                time.sleep(delay_s)
            finally:
                process.kill()
        self.kills[stage] += 1

    def resume(self, name: str) -> None:
        """What a dead client had begun is finished by another, under its id."""
        (pending,) = self.client.pending()
        self.ask(name)
        if [*self.asked][-1] != pending.id or self.client.pending():
            raise Broken(f"request {pending.id} was asked again as another one")

    # Operators.

    def rotate(self, place: int, moment: str, delay_s: float, again: bool) -> None:
        """An operator's process dies: while it starts, when it writes keys, or when it has written them."""
        helper = self.stage.helpers[place]
        folder, identity = helper.folder / "keys", self.stage.folder / f"{helper.name}.key"
        before = _names(folder), (folder / "keys.json").stat()
        command = [sys.executable, "-m", "maskedlark", "helper", "rotate"]
        arguments = ["--config", str(helper.config), "--identity", str(identity)]
        with Popen([*command, *arguments], stdout=PIPE, text=True) as process:
            reached = {
                "starting": lambda: True,
                "writing": lambda: _names(folder) != before[0] or (folder / "keys.json").stat() != before[1],
                "written": lambda: (folder / "keys.json").stat() != before[1],
            }[moment]
            _wait_until(lambda: reached() or process.poll() is not None, 0.0002)
            time.sleep(delay_s)
            process.kill()
        self.kills["rotation"] += 1
        if again:
            helper.rotate(self.stage.service.address, self.stage.rng)

    def publish_and_kill(self, delay_s: float) -> None:
        """The service dies while a document is handed in; its bytes are handed in until they are there."""
        helpers = "\n".join(
            f'"{each.name}" = "{each.identity.verifying.public.hex()}"' for each in self.stage.helpers
        )
        text = f'origin = "{self.stage.origin}"\n{self._settings}\n[helpers]\n{helpers}\n'
        key = self.stage.key
        made = draft(text, key.verifying, self.stage.document, SystemClock().now())
        body, service = chain.sign(made, key).encode(), self.stage.service
        handing = self._workers.submit(_hand_in, service.address, body)
        time.sleep(delay_s)
        self.kill("service", service)
        handing.result(PATIENCE_S)
        self.settle()
        found = self.stage.parameters.latest(self.stage.origin)
        if found != made:
            raise Broken("the document that was handed in is not the newest")
        self.stage.documents.append(found)

    def take_service_away(self) -> None:
        """Nobody needs it for what was used before; what is new to somebody has to be asked for."""
        self.stage.service.kill()
        self.kills["service"] += 1
        self.is_service_away = True
        if self.stage.document.digest not in self._used:
            self.bring_service_back()

    def bring_service_back(self) -> None:
        if self.is_service_away:
            self.stage.service.start()
            self.is_service_away = False


def _hand_in(address: str, body: bytes) -> None:
    end = _end()
    with Remote(address) as remote:
        while True:
            try:
                remote.post("/v1/documents", body, "application/json")
            except ServiceAway:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return


def _charges(helper: RunningHelper) -> int:
    """How many answers a helper has charged, by its disk."""
    database = open_database(f"sqlite:///{helper.folder / 'database' / 'helper.sqlite'}", make=False)
    query = select(func.count()).select_from(LINES).where(LINES.c.request.is_not(None))
    try:
        with database.read() as connection:
            return connection.scalar(query) or 0
    finally:
        database.close()


def _end() -> float:
    return time.monotonic() + PATIENCE_S


def _wait_until(is_so: Callable[[], bool], every_s: float = 0.001) -> None:
    end = _end()
    while not is_so():
        if time.monotonic() > end:
            raise Broken("what was waited for does not come")
        time.sleep(every_s)


def _names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def _children(pid: int) -> list[Path]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    # Threads start workers too; each thread has its own list.
    lists = found.parent.parent.glob("*/children")
    return [Path("/proc") / each for one in lists for each in one.read_text().split()]


def _check_gone(workers: Sequence[Path]) -> None:
    """A helper that is killed leaves no worker behind: it holds keys."""
    _wait_until(lambda: not any(map(_is_alive, workers)))


def _is_alive(process: Path) -> bool:
    """One that ended and that nobody has asked about is still listed, as a zombie."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def chance(seed: int) -> random.Random:
    """A schedule is no secret."""
    return random.Random(seed)


def stopping_client(path: str, action: str, name: str, part: str, number: str) -> None:
    """Do something, and stop at the n-th answer of a kind, to be killed there."""

    def stop() -> None:
        sys.stdout.write(HERE)
        sys.stdout.flush()
        threading.Event().wait(PATIENCE_S)

    trap = Trap(part, "", True, int(number), stop)
    with connected(Path(path), trap.see, trap.see) as client:
        if action == "send":
            client.send(name)
        else:
            client.ask(Held(), BY_CAMPAIGN, [name], NOISE)


if __name__ == "__main__":
    stopping_client(*sys.argv[1:])
