"""Kills: a party is ended at once, at a chosen message or moment, and started again."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx

from maskedlark.simulate.cluster import LocalCluster
from maskedlark.simulate.services import Process
from tests.simulation.kills.clients import Message, Trap, connected
from tests.simulation.kills.published import Published
from tests.simulation.kills.waiting import PATIENCE_S, wait_until


class Killer:
    """A stage on which parties are killed."""

    def __init__(self, made: LocalCluster, settings: str) -> None:
        self.stage, self._settings = made, settings
        self.kills: Counter[str] = Counter()
        self.after_kill: Callable[[Process], None] = lambda process: None
        """Looks at what a dead process left, before it is started again."""
        self._traps: list[Trap] = []
        self._starting: list[Process] = []
        self._killing = threading.Lock()
        self._workers = ThreadPoolExecutor(8)
        self._later: list[Future[None]] = []
        self._published_folder = made.folder / "published"
        self._published_folder.mkdir()
        self.published = Published(self._published_folder)
        self.client = connected(made.config, self._see, self._hear)

    def close(self) -> None:
        self._workers.shutdown()
        self.client.close()

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

    def trap_soon(
        self, stage: str, part: str, place: int, answers: bool, number: int, delay_s: float
    ) -> None:
        """A helper dies soon after its n-th message of a kind."""
        process = self.stage.helpers[place].process
        self._traps.append(
            Trap(part, process.address, answers, number, lambda: self.kill_soon(stage, process, delay_s))
        )

    def _see(self, message: Message) -> None:
        for trap in list(self._traps):
            trap.see(message)

    def _hear(self, response: httpx.Response) -> None:
        self._see(response)
        self.published.hear(response)


def _children(pid: int) -> list[Path]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    # Threads start workers too; each thread has its own list.
    lists = found.parent.parent.glob("*/children")
    return [Path("/proc") / each for one in lists for each in one.read_text().split()]


def _check_gone(workers: Sequence[Path]) -> None:
    """A helper that is killed leaves no worker behind: it holds keys."""
    wait_until(lambda: not any(map(_is_alive, workers)))


def _is_alive(process: Path) -> bool:
    """One that ended and that nobody has asked about is still listed, as a zombie."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
