"""Nothing beside the answers tells: sizes, numbers and times of messages, and logs, hold no secret.

The same people go through running services, once with the least of every secret and once with the most. Times
are compared in pairs whose order a coin chose, so that whatever else the machine does can favour neither: a
figure fails by chance once in ten thousand runs. The same figure sees a helper that waits for odd shares.
"""

import base64
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import httpx
import numpy as np
import pytest

from maskedlark.clock import SystemClock
from maskedlark.core import sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Measured
from maskedlark.errors import MaskedLarkError
from maskedlark.functions.sums import Sums, SumsQuestion
from maskedlark.privacy.messages import Request
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from maskedlark.simulate.population import Population
from maskedlark.simulate.services import Process
from maskedlark.simulate.stage import Stage, stage
from maskedlark.wire import uploads
from maskedlark.wire.columns import Key
from tests.integration.test_budget import Attacker
from tests.integration.waiting import next_second

TAG, WIDTH, PEOPLE = "clicks", 16, 1200
LOW, HIGH = -20, 2_000_000_000
SETTINGS = f"""
keys = ["campaign", "place"]
k = 50
fake_rate = 0.2
decoys = [{{keys = {{campaign = "spring", place = 1}}}}, {{tag = "{TAG}", features = "{"5a" * WIDTH}"}}]
budget = {{epsilon = 8.0, delta = 1e-6}}
training = {{adserver = {{epsilon = 4.0, delta = 5e-7}}, coalition = {{epsilon = 8.0, delta = 1e-6}}}}
[values]
bought = [0, 1]
euros = [{LOW}, {HIGH}]
[models.{TAG}]
features = {WIDTH}
"""
FALSE_ALARM = 1e-4
"""Of all figures about times together."""
FIGURES = 4
BOUND = NormalDist().inv_cdf(1 - FALSE_ALARM / FIGURES / 2)
PAIRS = 160
KINDS = (False, True)
"""With nothing done, and with the most."""
LEAK_S = 0.005


# What a helper loads from this file.


class Leaky(Sums):
    """Sums that take longer when a helper's share is odd."""

    name = "leaky"

    def ask(self, document, arguments):
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuestion)
        return _LeakyQuestion(asked.document, asked.arguments)


class _LeakyQuestion(SumsQuestion):
    def share(self, datasets, k):
        if sum(_parity(each.shares) for each in datasets if isinstance(each, Measured)) % 2:
            time.sleep(LEAK_S)
        return super().share(datasets, k)


class Loud(Sums):
    """Sums that fail, and say all that they know."""

    name = "loud"

    def ask(self, document, arguments):
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuestion)
        return _LoudQuestion(asked.document, asked.arguments)


class _LoudQuestion(SumsQuestion):
    def share(self, datasets, k):
        raise ValueError([(each.keys, each.shares) for each in datasets if isinstance(each, Measured)])


def _parity(shares: np.ndarray) -> int:
    """Of the sum of all; that it overflows does not change it."""
    return int(shares.sum()) % 2


@contextmanager
def staged(folder: Path, settings: str = SETTINGS) -> Iterator[Stage]:
    """Two helpers that know the functions above."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        loading = f'functions = ["{__name__}"]\n'
        with stage(folder, settings, SystemRandomness(), helper_settings=loading) as made:
            yield made


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


def population(made: Stage, rng: Randomness) -> Population:
    seen = SystemClock().now() - made.document.attribution_window_s - made.document.delay.most_s - 3600
    return Population(made.document, made.recipients(), seen, rng)


def measured(made: Stage, secrets: Secrets, rng: Randomness) -> list[bytes]:
    """Reports of people who saw one campaign in two, at one place in three."""
    who = range(len(secrets.bought))
    keys: list[list[Key]] = [["autumn" if each % 2 else "spring" for each in who], [each % 3 for each in who]]
    found = population(made, rng).measure(keys, [secrets.bought, secrets.euros])
    return [each for some in found for each in some]


def trained(made: Stage, secrets: Secrets, rng: Randomness) -> list[bytes]:
    features = np.arange(PEOPLE * WIDTH).astype(np.uint8).reshape(PEOPLE, WIDTH)
    return [each for some in population(made, rng).train(TAG, features, [secrets.labels]) for each in some]


# Listening.


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
def listening(made: Stage) -> Iterator[list[Heard]]:
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
            received = said + int(answer.headers["content-length"])
            path, sent = request.url.path, head + len(request.content)
            message = Message(to, request.method, path, sent, answer.status_code, received)
            heard.append(Heard(message, took))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.HTTPTransport, "handle_request", handle)
        yield heard


# Sizes and numbers.


def all_the_way(folder: Path, secrets: Secrets) -> Counter[object]:
    """Every report's size and every message, from upload to answer, with errors on the way."""
    with staged(folder) as made, listening(made) as heard:
        # The same draws for all: ids, fakes, their order and their moments are the same people's.
        rng = FixedRandomness(b"same people")
        reports = {"aggregate": measured(made, secrets, rng), "train": trained(made, secrets, rng)}
        for some in reports.values():
            made.upload([some[at : at + 100] for at in range(0, len(some), 100)])
        made.upload([reports["train"][:3]])  # once more
        end = next_second()
        with made.client() as client:
            for purpose in Purpose:
                client.freeze(purpose.value, 0, end, purpose)
            client.send("train")
            sealed = client.send("aggregate")
            values, by = ["count", "bought", "euros"], [["campaign"], ["place"], []]
            client.explain(values, by, noise=20.0)
            client.query(values, by, noise=20.0)
            client.query(["euros"], by=["campaign"], where={"place": 2}, noise=20.0)
            with pytest.raises(MaskedLarkError):
                client.query(["euros"], noise=0.9)
        assert sealed.digest is not None
        with pytest.raises(MaskedLarkError):
            Attacker(made).ask(question(sealed.digest.hex(), "loud"))
        for helper in made.helpers:
            assert httpx.get(f"{helper.process.address}/v1/origins/{made.origin}/receipts").is_success
            assert httpx.get(f"{helper.process.address}/health").is_success
    sizes: Counter[object] = Counter((name, len(each)) for name, some in reports.items() for each in some)
    assert len(sizes) == len(reports), "one size a purpose"
    return sizes + Counter(each.message for each in heard)


@pytest.fixture(scope="module")
def nothing_done(tmp_path_factory):
    return all_the_way(tmp_path_factory.mktemp("nothing"), alike(0, 0, 0))


@pytest.mark.long
@pytest.mark.parametrize(
    "secrets",
    [
        pytest.param(alike(1, HIGH, 1), id="the most"),
        pytest.param(alike(0, LOW, 0), id="the least"),
        pytest.param(drawn(), id="drawn"),
    ],
)
def test_sizes_and_numbers_of_messages_are_the_same_whatever_people_did(secrets, nothing_done, tmp_path):
    assert all_the_way(tmp_path, secrets) == nothing_done


@pytest.mark.long
def test_every_kind_of_message_is_listened_to(nothing_done):
    paths = {each.path for each in nothing_done if isinstance(each, Message)}
    for kind in ("/reports", "/chunks/0", "/seal", "/explain", "/releases", "/receipts", "/health"):
        assert any(path.endswith(kind) for path in paths), kind


# Times.


def evidence(differences: list[float]) -> float:
    """How many standard deviations the ranks of paired differences are off (Wilcoxon's signed ranks)."""
    found = np.array(differences)
    ranks = 1.0 + np.argsort(np.argsort(np.abs(found)))
    return float((np.sign(found) * ranks).sum() / np.sqrt((ranks**2).sum()))


def compare(heard: list[Heard], path: str, ask: Callable[[int, bool], object], pairs: int = PAIRS) -> float:
    """Ask of both kinds by turns, which first a coin says. What took longer, over messages of this path."""

    def took(number: int, high: bool) -> float:
        heard.clear()
        ask(number, high)
        return sum(each.took_s for each in heard if each.message.path.endswith(path))

    coins = FixedRandomness(path.encode()).below(2, pairs + 5).tolist()
    differences = []
    for number, first in enumerate(coins):
        times = {bool(high): took(number, bool(high)) for high in (first, 1 - first)}
        differences.append(times[True] - times[False])
    return evidence(differences[5:])  # Those before warmed it up.


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A stage, what is said there, and two sealed datasets that differ in what people did, and in parity."""
    settings = SETTINGS.replace("fake_rate = 0.2", "fake_rate = 0.0")
    with staged(tmp_path_factory.mktemp("times"), settings) as made, listening(made) as heard:
        attacker, digests = Attacker(made), {}
        for high in KINDS:
            reports = with_parity(made, extreme(high), high)
            digests[high] = attacker.dataset(f"sealed-{high}", made.document, reports)
        yield made, heard, attacker, digests


def extreme(high: bool, count: int = PEOPLE) -> Secrets:
    return alike(1, HIGH, 1, count) if high else alike(0, 0, 0, count)


def with_parity(made: Stage, secrets: Secrets, wanted: bool) -> list[bytes]:
    """Reports whose shares at helper 0 have a sum of this parity, so that `leaky` waits for one kind."""
    seen: list[int] = []
    plain = sharing.split

    def split(*arguments):
        shares = plain(*arguments)
        seen.append(_parity(shares.explicit))
        return shares

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "split", split)
        while True:
            seen.clear()
            reports = measured(made, secrets, SystemRandomness())
            if sum(seen) % 2 == wanted:
                return reports


def question(digest: str, function: str) -> Request:
    arguments = {"values": ["count", "bought", "euros"], "by": [["campaign"], ["place"]]}
    name = SystemRandomness().bytes(16).hex()
    return Request(id=name, datasets=(digest,), function=function, arguments=arguments, noise=1e6)


@pytest.mark.long
def test_an_ad_servers_time_does_not_depend_on_what_people_did(kinds):
    made, heard, _, _ = kinds
    reports = {high: measured(made, extreme(high, 4 * (PAIRS + 5)), SystemRandomness()) for high in KINDS}
    found = compare(heard, "/reports", lambda n, high: made.upload([reports[high][4 * n : 4 * n + 4]]))
    print("upload", found)
    assert abs(found) < BOUND


@pytest.mark.long
def test_a_helpers_time_for_a_chunk_does_not_depend_on_what_people_did(kinds):
    made, heard, attacker, _ = kinds
    parts, pairs = 50, 80
    reports = {high: measured(made, extreme(high, parts * (pairs + 5)), SystemRandomness()) for high in KINDS}

    def send(number, high):
        some = reports[high][parts * number : parts * (number + 1)]
        attacker.send(f"open-{number}-{int(high)}", made.document, some)

    found = compare(heard, "/chunks/0", send, pairs)
    print("chunk", found)
    assert abs(found) < BOUND


@pytest.mark.long
@pytest.mark.parametrize("path", ["/releases", "/explain"])
def test_a_helpers_time_to_answer_does_not_depend_on_what_people_did(kinds, path):
    _, heard, attacker, digests = kinds

    def ask(_, high):
        attacker.remotes[0].post(f"/v1{path}", question(digests[high], "sums").encode(), "application/json")

    found = compare(heard, path, ask)
    print(path, found)
    assert abs(found) < BOUND


@pytest.mark.long
def test_a_helper_that_waits_for_odd_shares_is_seen(kinds):
    _, heard, attacker, digests = kinds
    found = compare(heard, "/releases", lambda _, high: attacker.ask(question(digests[high], "leaky")))
    print("leaky", found)
    assert found > BOUND


# Logs.

VALUE = 1_234_567_891
CAMPAIGN = "planted-campaign-7f3a9c51"
FEATURES = bytes.fromhex("c0ffee15900dfeedfacebeefdeadbea7")


def forms_of_planted() -> list[bytes]:
    """As somebody would print them."""
    octets = [VALUE.to_bytes(8, "little"), VALUE.to_bytes(8, "big"), FEATURES]
    shown = [form for each in octets for form in (each, each.hex().encode(), base64.b64encode(each))]
    texts = [str(VALUE), f"{VALUE:_}", f"{VALUE:,}", f"{VALUE:x}", CAMPAIGN, repr(FEATURES)[2:-1]]
    lists = [", ".join(map(str, FEATURES)), " ".join(map(str, FEATURES)), ",".join(map(str, FEATURES))]
    return [*shown, *[each.encode() for each in texts + lists]]


def planted_in(said: bytes) -> list[bytes]:
    return [each for each in forms_of_planted() if each in said]


def rest_of(process: Process) -> bytes:
    """All that a service still has to say on its standard output, when it was told to end."""
    assert process._running is not None
    assert process._running.stdout is not None
    process._running.terminate()
    return process._running.stdout.read().encode()


def spoil(data: bytes) -> bytes:
    """The same report with a payload that does not open."""
    return data[:-1] + bytes([data[-1] ^ 1])


def provoke(made: Stage, reports: list[bytes], sealed: str) -> Iterator[bytes]:
    """What services answer to requests that are wrong in every way we could think of."""
    yield from provoke_adserver(made, reports)
    services = [made.service, made.adserver, *[helper.process for helper in made.helpers]]
    for service in services:
        yield made.http.get(f"{service.address}/health").content
        yield made.http.get(f"{service.address}/{CAMPAIGN}?{CAMPAIGN}={VALUE}").content
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as link:
            link.sendall(f"{CAMPAIGN} {VALUE}\r\n\r\n".encode())
            yield link.makefile("rb").read()
    attacker = Attacker(made)
    for remote in attacker.remotes:
        for path, text in [
            ("/v1/releases", json.dumps({"arguments": {CAMPAIGN: VALUE}})),
            ("/v1/releases", f'{{"id": "{CAMPAIGN}", "noise": {VALUE}, "function": ["{CAMPAIGN}"]'),
            ("/v1/explain", json.dumps({"where": [{"key": "campaign", "among": [CAMPAIGN, None, VALUE]}]})),
            ("/v1/datasets/spoiled", json.dumps({"parameters": CAMPAIGN, "purpose": VALUE})),
        ]:
            yield refusal(partial(remote.post, path, text.encode(), "application/json"))
    # The last payload is helper 1's: helper 0 accepts what the other cannot open.
    answers = attacker.send("spoiled", made.document, [spoil(reports[0]), *reports[1:9]])
    yield b"".join(each.encode() for each in answers)
    yield refusal(lambda: attacker.seal("spoiled", [answers[0]] * 2))
    yield refusal(lambda: attacker.ask(question(sealed, "loud")))
    among = {"values": ["euros"], "where": [{"key": "campaign", "among": [CAMPAIGN, 2.5]}]}
    yield refusal(lambda: attacker.ask(question(sealed, "sums").model_copy(update={"arguments": among})))


def provoke_adserver(made: Stage, reports: list[bytes]) -> Iterator[bytes]:
    wrong = [b"", b"\x09", CAMPAIGN.encode(), uploads.encode_batch([CAMPAIGN.encode(), FEATURES])]
    for body in [*wrong, uploads.encode_batch([reports[0], spoil(reports[0]), reports[0][:-9]])]:
        for kind in (uploads.CONTENT_TYPE, "application/json"):
            headers = {"content-type": kind}
            yield made.http.post(f"{made.adserver.address}/reports", content=body, headers=headers).content


def refusal(ask: Callable[[], object]) -> bytes:
    """What is said of a request that is refused, with all that it was caused by."""
    with pytest.raises(MaskedLarkError) as caught:
        ask()
    return repr((caught.value, caught.value.__cause__)).encode()


def test_nothing_that_people_did_or_saw_is_in_a_log_or_in_an_error(tmp_path, capfd, caplog):
    caplog.set_level(logging.INFO, "maskedlark")
    caplog.set_level(logging.WARNING, "httpx")  # It tells its own process which address it asks.
    with staged(tmp_path) as made:
        keys: list[list[Key]] = [[CAMPAIGN] * PEOPLE, [7] * PEOPLE]
        people, everyone = population(made, SystemRandomness()), alike(1, VALUE, 1)
        reports = [each for some in people.measure(keys, [everyone.bought, everyone.euros]) for each in some]
        features = np.tile(np.frombuffer(FEATURES, np.uint8), (PEOPLE, 1))
        made.upload(people.train(TAG, features, [everyone.labels]))
        end = next_second()
        with made.client() as client:
            client.freeze("train", 0, end, Purpose.TRAIN)
            client.send("train")
        attacker = Attacker(made)
        sealed = attacker.dataset("planted", made.document, reports[9:])
        answer = attacker.ask(question(sealed, "sums"))
        said = [*provoke(made, reports, sealed)]
        services = [made.service, made.adserver, *[helper.process for helper in made.helpers]]
        said += [rest_of(each) for each in services]
    printed = capfd.readouterr()
    said += [printed.out.encode(), printed.err.encode(), caplog.text.encode()]
    # Something was logged, or there would be nothing to look through; and what is there is found.
    assert b"an unexpected ValueError" in printed.err.encode()
    assert planted_in(answer) == [CAMPAIGN.encode()]
    assert not [found for each in said if (found := planted_in(each))]
