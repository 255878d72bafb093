"""People, what they did, and running services that are listened to. For tests of side channels."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from maskedlark.browser.population import Population
from maskedlark.clock import SystemClock
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from maskedlark.release.messages import Request
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.simulate.services import Process
from maskedlark.wire.columns import Key
from tests.statistical import side_functions

TAG, WIDTH, PEOPLE = "clicks", 16, 1200
LOW, HIGH = -20, 2_000_000_000
FALSE_ALARM = 1e-4
"""Of all figures of a test about times together."""
SETTINGS = f"""
keys = ["campaign", "place"]
k = 50
fake_rate = 0.2
decoys = [{{keys = {{campaign = "spring", place = 1}}}}, {{tag = "{TAG}", columns = "{"5a" * WIDTH}"}}]
budget = {{epsilon = 8.0, delta = 1e-6}}
training = {{adserver = {{epsilon = 4.0, delta = 5e-7}}, coalition = {{epsilon = 8.0, delta = 1e-6}}}}
[mechanisms]
sums = {{kind = "laplace", noise_floor = 1.0}}
leaky = {{kind = "laplace", noise_floor = 1.0}}
loud = {{kind = "laplace", noise_floor = 1.0}}
gradient = {{kind = "gaussian", noise_floor = 1.0}}
[values]
bought = [0, 1]
euros = [{LOW}, {HIGH}]
[models.{TAG}]
columns = [{{kind = "bytes", count = {WIDTH}}}]
"""


@contextmanager
def staged(
    folder: Path, settings: str = SETTINGS, log_level: str = "WARNING", serving: str = ""
) -> Iterator[LocalCluster]:
    """Two helpers that know the functions that tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        loading = f'functions = ["{side_functions.__name__}"]\n'
        with local_cluster(
            folder,
            settings,
            SystemRandomness(),
            helper_settings=loading,
            log_level=log_level,
            serving=serving,
        ) as made:
            yield made


def services(made: LocalCluster) -> list[Process]:
    return [made.service, made.adserver, *[helper.process for helper in made.helpers]]


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Let what is started meanwhile write its logs to this file."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def pages(made: LocalCluster) -> list[str]:
    """Where each service shows its metrics: the line behind the one that says where it listens."""
    found = []
    for process in services(made):
        assert process._running is not None
        assert process._running.stdout is not None
        said, _, address = process._running.stdout.readline().strip().rpartition(" ")
        assert said == "metrics on"
        found.append(address)
    return found


def samples(page: str) -> dict[str, float]:
    """Every number of a page of metrics, once everything that was asked is counted."""
    while _samples(page)["maskedlark_requests_in_flight {}"]:
        time.sleep(0.05)
    # Once more: a page is no snapshot, and its other numbers may be of a moment before.
    return _samples(page)


def _samples(page: str) -> dict[str, float]:
    families = text_string_to_metric_families(httpx.get(f"{page}/metrics").text)
    return {f"{each.name} {each.labels}": each.value for family in families for each in family.samples}


def lines(path: Path) -> list[dict[str, object]]:
    """The lines of logs: every one is an object."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Secrets(NamedTuple):
    """What people did."""

    bought: np.ndarray
    euros: np.ndarray
    labels: np.ndarray


def alike(bought: int, euros: int, label: int, count: int = PEOPLE) -> Secrets:
    return Secrets(np.full(count, bought), np.full(count, euros), np.full(count, label))


def drawn() -> Secrets:
    rng = FixedRandomness(b"what they did")
    return Secrets(rng.below(2, PEOPLE), rng.below(HIGH - LOW, PEOPLE) + LOW, rng.below(2, PEOPLE))


def population(made: LocalCluster, rng: Randomness) -> Population:
    seen = SystemClock().now() - made.document.attribution_window_s - made.document.delay.max_s - 3600
    return Population(made.document, made.sealing_keys(), seen, rng)


def measured(made: LocalCluster, secrets: Secrets, rng: Randomness) -> list[bytes]:
    """Reports of people who saw one campaign in two, at one place in three."""
    who = range(len(secrets.bought))
    keys: list[list[Key]] = [["autumn" if each % 2 else "spring" for each in who], [each % 3 for each in who]]
    found = population(made, rng).measure(keys, [secrets.bought, secrets.euros])
    return [each for some in found for each in some]


def trained(made: LocalCluster, secrets: Secrets, rng: Randomness) -> list[bytes]:
    features = np.arange(PEOPLE * WIDTH).astype(np.uint8).reshape(PEOPLE, WIDTH)
    return [each for some in population(made, rng).train(TAG, features, [secrets.labels]) for each in some]


def question(digest: str, function: str) -> Request:
    arguments = {"values": ["count", "bought", "euros"], "by": [["campaign"], ["place"]]}
    name = SystemRandomness().bytes(16).hex()
    return Request(id=name, datasets=(digest,), function=function, arguments=arguments, noise=1e6)


class Message(NamedTuple):
    """An exchange as whoever watches the line sees it."""

    to: str
    method: str
    path: str
    sent: int
    status: int
    received: int


class Heard(NamedTuple):
    message: Message
    took_s: float


@contextmanager
def listening(made: LocalCluster) -> Iterator[list[Heard]]:
    """All that this process says to the ad server and to helpers, and how long their answers took."""
    parties = {helper.process.port: helper.name for helper in made.helpers}
    parties[made.adserver.port] = "ad server"
    heard: list[Heard] = []
    plain = httpx.HTTPTransport.handle_request

    def handle(self, request):
        start = time.perf_counter()
        answer = plain(self, request)
        took = time.perf_counter() - start
        # Documents and keys are asked for by age, whoever did what.
        if to := parties.get(request.url.port or 0):
            head = sum(len(name) + len(value) for name, value in request.headers.raw)
            said = sum(len(name) + len(value) for name, value in answer.headers.raw)
            received = said + int(answer.headers.get("content-length", "0"))
            # A dataset's digest is random, since ids are.
            path = re.sub(r"/[0-9a-f]{64}", "/{digest}", request.url.path)
            sent = head + len(request.content)
            message = Message(to, request.method, path, sent, answer.status_code, received)
            heard.append(Heard(message, took))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.HTTPTransport, "handle_request", handle)
        yield heard


def evidence(differences: list[float]) -> float:
    """How many standard deviations the ranks of paired differences are off (Wilcoxon's signed ranks)."""
    found = np.array(differences)
    ranks = 1.0 + np.argsort(np.argsort(np.abs(found)))
    return float((np.sign(found) * ranks).sum() / np.sqrt((ranks**2).sum()))
