"""The parameter service as a process of its own, reached over loopback by the real client."""

import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from maskedlark.clock import SystemClock
from maskedlark.errors import Forked, MaskedLarkError
from maskedlark.parameter_service.app import CBOR, JSON
from maskedlark.parameters import chain
from maskedlark.randomness import SystemRandomness
from maskedlark.web import key_file
from maskedlark.web.errors import ServiceAway
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS
from tests.unit.web.service import ORIGIN, chained

COMMAND = [sys.executable, "-W", "error", "-m", "maskedlark", "parameters", "serve"]
START_WITHIN_S = 60


class Running:
    """The service's process, its keys and its database, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service_key = key_file.create(folder / "service.key", SystemRandomness()).verifying
        pins = f'[origins]\n"{ORIGIN}" = "{DOCUMENT_KEY.verifying.public.hex()}"\n'
        pins += f'[helpers]\nhelper-0 = "{HELPER_KEYS[0].verifying.public.hex()}"\n'
        service = 'key = "service.key"\ndatabase = "sqlite:///parameters.db"\n'
        (folder / "parameters.toml").write_text(service + pins)
        self.clients: list[ParameterClient] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        options = ["--config", str(self.folder / "parameters.toml"), "--log-level", "WARNING"]
        self.process = subprocess.Popen(
            [*COMMAND, *options, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], START_WITHIN_S)[0], "the service does not start"
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line + self.rest()
        self.url = line.split()[-1]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.said = self.rest()
        return self.process.returncode

    def rest(self) -> str:
        out, err = self.process.communicate(timeout=30)
        return out + err

    def client(self, name: str = "cache") -> ParameterClient:
        pins = {ORIGIN: DOCUMENT_KEY.verifying}
        made = ParameterClient(self.url, self.service_key, self.folder / name, SystemClock(), pins)
        self.clients.append(made)
        return made


@pytest.fixture
def running(tmp_path):
    running = Running(tmp_path)
    yield running
    for each in running.clients:
        each.close()
    if running.process.poll() is None:
        running.stop(signal.SIGKILL)


def publish(url, drafted):
    with Remote(url) as remote:
        return chain.decode(remote.post("/v2/documents", chain.sign(drafted, DOCUMENT_KEY).encode(), JSON))


def test_publish_fetch_stop_and_start(running):
    first, second, third = chained(3)
    for each in (first, second):
        publish(running.url, each).published(running.service_key)
    asking = running.client()
    assert asking.latest(ORIGIN) == second
    assert running.stop(signal.SIGTERM) == 0
    assert running.said == ""
    assert asking.latest(ORIGIN) == running.client().latest(ORIGIN) == second
    with pytest.raises(ServiceAway):
        running.client("another").latest(ORIGIN)
    running.start()
    publish(running.url, third)
    assert asking.latest(ORIGIN) == third
    assert running.client("another").by_digest(first.digest) == first
    assert running.stop(signal.SIGINT) == 0


def test_a_helper_s_keys_cross_as_they_were_signed(running):
    now, identity = SystemClock().now(), HELPER_KEYS[0]
    published = PublishedKey(OpeningKey.generate(SystemRandomness()).sealing, now - 10, now + 1000)
    made = KeyConfiguration("helper-0", identity.verifying, "https://helper.example", 1, (published,))
    with Remote(running.url) as remote:
        remote.post("/v2/keys", made.sign(identity), CBOR, {"helper": "helper-0"})
    assert running.client().keys("helper-0", identity.verifying) == made


def test_rivals_at_once_over_http(running):
    first = chained(1)[0]
    publish(running.url, first)

    def rival(number):
        try:
            return publish(running.url, chained(1, first, k=100 + number)[0])
        except Forked:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [found for found in pool.map(rival, range(16)) if found]
    assert len(won) == 1
    assert running.client().latest(ORIGIN).encode() == won[0].body


def test_killed_in_the_middle_of_publishing(running):
    """What was answered is there; what was not can be handed in again, and gets in once."""
    documents, answered, enough = chained(400), [], threading.Event()

    def publish_all():
        for each in documents:
            try:
                answered.append(publish(running.url, each).claimed())
            except MaskedLarkError:
                return
            if len(answered) == 15:
                enough.set()

    thread = threading.Thread(target=publish_all)
    thread.start()
    assert enough.wait(60)
    assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    thread.join()
    running.start()
    kept = running.client().chain(ORIGIN)
    assert kept[: len(answered)] == answered == documents[: len(answered)]
    assert len(answered) <= len(kept) <= len(answered) + 1
    for each in documents[len(answered) : len(answered) + 2]:
        publish(running.url, each)
    assert running.client().latest(ORIGIN) == documents[len(answered) + 1]


def test_an_endless_body_is_cut_off(running):
    def endless():
        while True:
            yield bytes(1 << 16)

    try:
        answer = httpx.post(f"{running.url}/v2/documents", content=endless(), timeout=20)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # Hung up while we were still talking: as good.
    assert httpx.get(f"{running.url}/health").json() == {"status": "ok"}
