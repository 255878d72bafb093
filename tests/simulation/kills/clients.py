"""The ad server's own hands, seen by others; as a module, one that stops at a message, to be killed there."""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from maskedlark.adserver import config
from maskedlark.adserver.client import Client
from maskedlark.adserver.remote_helper import Connections, Retries
from maskedlark.clock import SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.web import key_file
from maskedlark.web.parameters import ParameterClient
from tests.simulation.kills.held import BY_CAMPAIGN, NOISE, Held
from tests.simulation.kills.published import leave
from tests.simulation.kills.waiting import PATIENCE_S

HERE = "here\n"
Message = httpx.Request | httpx.Response


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
    connections = Connections(found.origin, key, parameters, clock, http, retries)
    return Client(found.origin, database, parameters, connections, clock, SystemRandomness())


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


def stopping_client(path: str, action: str, name: str, part: str, number: str, published: str) -> None:
    """Do something, and stop at the n-th answer of a kind, to be killed there. Numbers that it heard stay."""

    def stop() -> None:
        sys.stdout.write(HERE)
        sys.stdout.flush()
        threading.Event().wait(PATIENCE_S)

    def hear(response: httpx.Response) -> None:
        leave(Path(published), response)
        trap.see(response)

    trap = Trap(part, "", True, int(number), stop)
    with connected(Path(path), trap.see, hear) as client:
        if action == "send":
            client.send(name)
        elif action == "abort":
            client.abort(name)
        else:
            client.ask(Held(), BY_CAMPAIGN, [name], NOISE)


if __name__ == "__main__":
    stopping_client(*sys.argv[1:])
