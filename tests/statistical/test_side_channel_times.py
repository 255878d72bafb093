"""How long a service takes tells nothing of what people did.

The same people go through running services, once with the least of every secret and once with the most. Times
are compared in pairs whose order a coin chose, so that whatever else the machine does can favour neither: a
figure fails by chance once in ten thousand runs. The same figure sees a helper that waits for odd shares.
"""

from collections.abc import Callable
from statistics import NormalDist

import pytest

from maskedlark.core import sharing
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.wire.datasets import FREEZE_TYPE, JSON_TYPE, FreezeRequest
from tests.integration.attacker import Attacker
from tests.statistical import sides
from tests.statistical.side_functions import parity
from tests.statistical.sides import (
    FALSE_ALARM,
    HIGH,
    PEOPLE,
    SETTINGS,
    Heard,
    Secrets,
    alike,
    evidence,
    measured,
    question,
    staged,
)

FIGURES = 5
BOUND = NormalDist().inv_cdf(1 - FALSE_ALARM / FIGURES / 2)
PAIRS = 160
KINDS = (False, True)
"""With nothing done, and with the most."""


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
    """A stage, what is said there, and two frozen datasets that differ in what people did, and in parity."""
    settings = SETTINGS.replace("fake_rate = 0.2", "fake_rate = 0.0")
    with staged(tmp_path_factory.mktemp("times"), settings) as made, sides.listening(made) as heard:
        attacker, digests = Attacker(made), {}
        for high in KINDS:
            reports = with_parity(made, extreme(high), high)
            digests[high] = attacker.dataset(f"frozen-{high}", made.document, reports)
        yield made, heard, attacker, digests


def extreme(high: bool, count: int = PEOPLE) -> Secrets:
    return alike(1, HIGH, 1, count) if high else alike(0, 0, 0, count)


def with_parity(made: LocalCluster, secrets: Secrets, wanted: bool) -> list[bytes]:
    """Reports whose shares at helper 0 have a sum of this parity, so that `leaky` waits for one kind."""
    seen: list[int] = []
    plain = sharing.split

    def split(*arguments):
        shares = plain(*arguments)
        seen.append(parity(shares.explicit))
        return shares

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "split", split)
        while True:
            seen.clear()
            reports = measured(made, secrets, SystemRandomness())
            if sum(seen) % 2 == wanted:
                return reports


@pytest.mark.long
def test_an_ad_servers_time_does_not_depend_on_what_people_did(kinds):
    made, heard, _, _ = kinds
    reports = {high: measured(made, extreme(high, 4 * (PAIRS + 5)), SystemRandomness()) for high in KINDS}
    found = compare(heard, "/v2/reports", lambda n, high: made.upload([reports[high][4 * n : 4 * n + 4]]))
    print("upload", found)
    assert abs(found) < BOUND


@pytest.mark.long
def test_a_helpers_time_for_a_chunk_and_its_freeze_does_not_depend_on_what_people_did(kinds):
    made, heard, attacker, _ = kinds
    parts, pairs = 50, 80
    reports = {high: measured(made, extreme(high, parts * (pairs + 5)), SystemRandomness()) for high in KINDS}
    answers = {}

    def send(number, high):
        some = reports[high][parts * number : parts * (number + 1)]
        name = f"open-{number}-{int(high)}"
        answers[number, high] = attacker.send(name, made.document, some)

    def freeze(number, high):
        name, answer = f"open-{number}-{int(high)}", answers[number, high][0]
        body = FreezeRequest(accepted=(answer.accepted,)).encode()
        attacker.remotes[0].post(f"/v2/datasets/{name}/freeze", body, FREEZE_TYPE, attacker.query(name))

    for path, ask in (("/chunks/0", send), ("/freeze", freeze)):
        found = compare(heard, path, ask, pairs)
        print(path, found)
        assert abs(found) < BOUND, path


@pytest.mark.long
@pytest.mark.parametrize("path", ["/releases", "/explain"])
def test_a_helpers_time_to_answer_does_not_depend_on_what_people_did(kinds, path):
    _, heard, attacker, digests = kinds

    def ask(_, high):
        attacker.remotes[0].post(f"/v2{path}", question(digests[high], "sums").encode(), JSON_TYPE)

    found = compare(heard, path, ask)
    print(path, found)
    assert abs(found) < BOUND


@pytest.mark.long
def test_a_helper_that_waits_for_odd_shares_is_seen(kinds):
    _, heard, attacker, digests = kinds
    # Twice as many: here it is the machine's noise that must not hide it.
    found = compare(
        heard, "/releases", lambda _, high: attacker.ask(question(digests[high], "leaky")), 2 * PAIRS
    )
    print("leaky", found)
    assert found > BOUND
