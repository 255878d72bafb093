"""Claim 27, over HTTP against running helpers: nothing is answered twice for free.

The ad server here does not keep to its client: it talks to helpers as it likes.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from typer.testing import CliRunner

from maskedlark.cli import app as whole_app
from maskedlark.cli.helper import app
from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.errors import BudgetExhausted, LedgerBehind, RequestIdReused
from maskedlark.ledger.receipt import decode
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.web import problem
from maskedlark.web.errors import (
    BadRequestSignature,
    ServiceAway,
    TooFewToFreeze,
    UndeclaredKey,
    UnsignedRequest,
)
from maskedlark.wire import datasets
from maskedlark.wire.datasets import State
from maskedlark.wire.signatures import SigningKey
from tests.integration.attacker import RECORDS, SETTINGS, Attacker, reports, request
from tests.integration.waiting import next_second

OTHER = "other.example"
HOURS = 370
ORIGINS = [f"ads-{place}.example" for place in range(8)]


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[tuple[LocalCluster, Iterator[str]]]:
    """Processes that tests share, and origins that nothing was published for yet."""
    folder = tmp_path_factory.mktemp("services")
    with local_cluster(folder, SETTINGS, SystemRandomness(), 2, others=[OTHER, *ORIGINS]) as made:
        yield made, iter(ORIGINS)


@pytest.fixture
def running(services) -> LocalCluster:
    """For each test an origin of its own: budgets, datasets and receipts are kept by origin."""
    made, unused = services
    own: LocalCluster = replace(made, origin=next(unused), documents=[])
    own.publish(SETTINGS)
    return own


@pytest.fixture
def alone(tmp_path) -> Iterator[LocalCluster]:
    """Processes of its own, for a test that breaks them."""
    with local_cluster(tmp_path, SETTINGS, SystemRandomness(), 2) as made:
        yield made


def spent(made: LocalCluster, place: int = 0) -> dict[str, float]:
    """What a third party finds in the helper's receipts."""
    address = made.helpers[place].process.address
    page = httpx.get(f"{address}/v2/origins/{made.origin}/receipts").json()
    chain = [decode(json.dumps(each)) for each in page["receipts"]]
    found = receipt_verification.verify(chain, made.origin, made.helpers[place].name, made.documents)
    return {digest: each.epsilon for digest, each in found.spent().items()}


def test_replayed_reports_and_overlapping_datasets(running):
    attacker, first = Attacker(running), reports(running)
    digest = attacker.dataset("first", running.document, first)
    # The same reports under another name: every one is refused, so there is nothing to freeze.
    for answer in attacker.send("again", running.document, first):
        assert answer.refused == {"Replayed": RECORDS}
    # Half old, half new: the old half is refused, and what is frozen is the new one.
    new = reports(running)
    answers = attacker.send("overlap", running.document, first[: RECORDS // 2] + new[: RECORDS // 2])
    assert [answer.refused for answer in answers] == [{"Replayed": RECORDS // 2}] * 2
    other = attacker.freeze("overlap", answers)
    # One report twice in one dataset counts once.
    (answer, _) = attacker.send("twice", running.document, [*new[RECORDS // 2 :], new[-1]])
    assert answer.refused == {"Replayed": 1}
    # Each source is in one dataset, so neither budget can be spent through the other.
    assert [attacker.tries(request(n, digest, noise=0.25)) for n in range(3)] == [
        "answered", "answered", "budget-exhausted",
    ]  # fmt: skip
    assert attacker.tries(request(10, other, digest, noise=1.0)) == "budget-exhausted"
    assert attacker.tries(request(11, other, noise=0.125)) == "answered"
    assert spent(running)[running.document.digest.hex()] == pytest.approx(8)


def test_an_aborted_dataset_frees_its_reports_and_a_frozen_one_never_does(running):
    attacker, stored = Attacker(running), reports(running)
    attacker.send("first", running.document, stored)
    for remote in attacker.remotes:
        remote.delete("/v2/datasets/first", attacker.query("first"))
    attacker.dataset("second", running.document, stored)
    with pytest.raises(MaskedLarkError) as caught:
        attacker.remotes[0].delete("/v2/datasets/second", attacker.query("second"))
    assert "frozen" in str(caught.value)
    assert State.decode(attacker.remotes[0].get("/v2/datasets/second")).records == RECORDS


def test_repeated_reasked_and_concurrent_requests(running):
    attacker = Attacker(running)
    digest = attacker.dataset("all", running.document, reports(running))
    first = attacker.ask(request(1, digest))
    assert attacker.ask(request(1, digest)) == first
    with pytest.raises(RequestIdReused):
        attacker.ask(request(1, digest, noise=2.0))
    with ThreadPoolExecutor(50) as pool:
        same = set(pool.map(lambda _: attacker.ask(request(2, digest)), range(50)))
        assert len(same) == 1
        outcomes = list(pool.map(lambda number: attacker.tries(request(number, digest)), range(100, 150)))
    # ε = 1 each; two were asked before, and the budget is 8.
    assert sorted(set(outcomes)) == ["answered", "budget-exhausted"]
    assert outcomes.count("answered") == 6
    running.helpers[0].process.kill()
    running.helpers[0].process.start()
    assert attacker.ask(request(1, digest)) == first, "the same bytes after a kill"
    with pytest.raises(BudgetExhausted) as caught:
        attacker.ask(request(200, digest))
    assert caught.value.facts() == {
        "wanted_epsilon": 1.0,
        "wanted_coalition_epsilon": 1.0,
        "left_epsilon": 0.0,
        "left_of": "a source's budget",
        "noise_that_fits": None,
    }
    assert spent(running) == {running.document.digest.hex(): pytest.approx(8)}


@pytest.mark.long  # A helper that is away is asked again for 15 seconds.
def test_a_lost_helper_of_an_old_document_hides_no_budget(alone):
    with alone.client() as client:
        alone.upload([reports(alone)])
        client.select("all", 0, next_second(), Purpose.AGGREGATE)
        client.send("all")
        client.query(["bought"], noise=1.0)
        alone.publish(SETTINGS.replace("k = 50", "k = 60"))
    alone.helpers[1].process.kill()
    done = CliRunner().invoke(whole_app, ["budget", "--config", str(alone.config), "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["documents"]
    assert list(found["helpers_missing"]) == [alone.helpers[1].name]
    assert found["limits"][0]["spent"] == pytest.approx(1)


@pytest.mark.long
def test_hourly_datasets_of_weeks_are_charged_each_by_one_release(running):
    made = running.publish(SETTINGS.replace("k = 50", "k = 1"))
    attacker = Attacker(running)
    digests = [attacker.dataset(f"hour-{n}", made, reports(running, count=2)) for n in range(HOURS)]
    assert attacker.tries(request(1, *digests, noise=0.25)) == "answered"
    assert spent(running) == {made.digest.hex(): pytest.approx(4)}
    # Each of them has ε = 4 left, the last one too.
    assert attacker.tries(request(2, digests[-1], noise=0.2)) == "budget-exhausted"


def test_two_origins(running):
    attacker, stored = Attacker(running), reports(running)
    digest = attacker.dataset("all", running.document, stored)
    theirs = running.publish(SETTINGS, OTHER)
    stranger = Attacker(running, OTHER)
    # Another origin's dataset is not there for it, by digest or by name.
    assert stranger.tries(request(1, digest)) == "unknown-dataset"
    # Reports that were made for one ad server are refused in another's dataset.
    for answer in stranger.send("theirs", theirs, stored):
        assert answer.refused == {"CannotOpen": RECORDS}
    # Nor can it open a dataset under a document of ours.
    with pytest.raises(MaskedLarkError) as caught:
        stranger.send("stolen", running.document, stored)
    assert problem.slug(type(caught.value)) in ("document-of-another", "strange-answer")
    # Its own key does not sign for us.
    impostor = Attacker(running, running.origin, running.request_keys[OTHER])
    assert impostor.tries(request(1, digest)) == "undeclared-key"
    assert spent(running) == {}


def test_forged_and_missing_signatures(running):
    attacker = Attacker(running)
    digest = attacker.dataset("all", running.document, reports(running))
    asked, address = request(1, digest), running.helpers[0].process.address
    bare = httpx.post(
        f"{address}/v2/releases", content=asked.encode(), headers={"content-type": datasets.JSON_TYPE}
    )
    assert isinstance(problem.error_of(bare.status_code, bare.content), UnsignedRequest)
    own = SigningKey.generate(SystemRandomness())
    with pytest.raises(UndeclaredKey):
        Attacker(running, key=own).ask(asked)
    with httpx.Client(event_hooks={"request": [_forge]}) as http:
        remote = running.signed(0)
        remote._http = http
        with pytest.raises(BadRequestSignature):
            remote.post("/v2/releases", asked.encode(), datasets.JSON_TYPE)
    assert spent(running) == {}


def _forge(sent: httpx.Request) -> None:
    """Another signature of the right form."""
    label, _, encoded = sent.headers["signature"].partition(":")
    flipped = ("B" if encoded[0] == "A" else "A") + encoded[1:]
    sent.headers["signature"] = f"{label}:{flipped}"


def test_another_parameter_version(running):
    attacker, stored = Attacker(running), reports(running)
    old = running.document
    digest = attacker.dataset("old", old, stored)
    assert attacker.tries(request(1, digest, noise=0.125)) == "answered"
    # A new version with a larger budget: nothing made under the old one moves into it.
    new = running.publish(SETTINGS.replace("epsilon = 8.0", "epsilon = 80.0"))
    for answer in attacker.send("new", new, stored):
        assert answer.refused == {"CannotOpen": RECORDS}
    assert attacker.tries(request(2, digest)) == "budget-exhausted"
    fresh = attacker.dataset("fresh", new, reports(running))
    assert attacker.tries(request(3, digest, fresh)) == "mixed-datasets"
    assert attacker.tries(request(4, fresh, noise=0.125)) == "answered"
    assert spent(running) == {old.digest.hex(): pytest.approx(8), new.digest.hex(): pytest.approx(8)}


def test_a_ledger_restored_from_an_old_copy(alone, tmp_path, capfd):
    attacker, helper = Attacker(alone), alone.helpers[0]
    digest = attacker.dataset("all", alone.document, reports(alone))
    database = helper.folder / "database" / "helper.sqlite"
    helper.process.stop()
    shutil.copytree(database.parent, tmp_path / "copy")
    helper.process.start()
    assert attacker.tries(request(1, digest, noise=0.125)) == "answered"
    # Without its anchor it cannot tell, and does not start; an operator who can says so.
    helper.process.stop()
    shutil.rmtree(helper.folder / "anchor")
    with pytest.raises(ServiceAway):
        helper.process.start()
    assert "put the anchor back" in capfd.readouterr().err
    accepted = CliRunner().invoke(app, ["accept-ledger", "--config", str(helper.config)], input="y\n")
    assert "anchored ads.example" in accepted.output
    helper.process.start()
    assert attacker.tries(request(2, digest)) == "budget-exhausted"
    # Under a running helper: the old contents written over the new ones.
    with sqlite3.connect(tmp_path / "copy" / database.name) as old, sqlite3.connect(database) as now:
        old.backup(now)
    with pytest.raises(LedgerBehind):
        attacker.ask(request(2, digest, noise=0.125))
    # At the start: it does not.
    helper.process.stop()
    with pytest.raises(ServiceAway):
        helper.process.start()
    assert "old copy" in capfd.readouterr().err


def test_what_was_not_declared(running):
    attacker = Attacker(running)
    digest = attacker.dataset("all", running.document, reports(running))
    assert attacker.tries(request(1, digest, noise=0.01)) == "noise-too-small"
    assert attacker.tries(request(2, digest, values=("euros",))) == "bad-arguments"
    assert attacker.tries(request(3, "00" * 32)) == "unknown-dataset"
    with pytest.raises(TooFewToFreeze):
        attacker.dataset("few", running.document, reports(running, count=40))
    assert spent(running) == {}
    assert Purpose.AGGREGATE.value == State.decode(attacker.remotes[0].get("/v2/datasets/all")).purpose
