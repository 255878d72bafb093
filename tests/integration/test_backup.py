"""A helper's disk is lost while it works: its budgets are not. Over HTTP, with running processes."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import maskedlark.cli
from maskedlark.clock import hour_of
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.receipt import RecoveredReceipt, SignedReceipt, decode
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, RunningHelper, local_cluster
from maskedlark.web.errors import ServiceAway
from tests.integration.attacker import SETTINGS, Attacker, reports, request

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


@pytest.fixture
def running(tmp_path) -> Iterator[LocalCluster]:
    # Beside the state folder, as on another disk.
    with local_cluster(
        tmp_path, SETTINGS, SystemRandomness(), 2, helper_settings='anchor = "anchor"'
    ) as made:
        yield made


def run(command: str, helper: RunningHelper, *arguments: object, code: int = 0, **options: Any) -> str:
    line = ["helper", command, "--config", helper.config, *arguments]
    done = RUN(maskedlark.cli.app, [*map(str, line)], **options)
    assert done.exit_code == code, done.output
    return done.output


def fetched(made: LocalCluster, helper: RunningHelper) -> list[SignedReceipt]:
    page = httpx.get(f"{helper.process.address}/v2/origins/{made.origin}/receipts").json()
    return [decode(json.dumps(each)) for each in page["receipts"]]


def spent(made: LocalCluster, chain: list[SignedReceipt], helper: RunningHelper) -> float:
    """What a third party adds up."""
    found = receipt_verification.verify(chain, made.origin, helper.name, made.documents)
    return found.spent()[made.documents[0].digest.hex()].epsilon


class Busy:
    """An ad server that sends datasets and asks questions until it is stopped."""

    def __init__(self, attacker: Attacker, made: LocalCluster, digest: str) -> None:
        self._attacker, self._made, self._digest = attacker, made, digest
        self._stop, self.done = threading.Event(), 0
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._attacker.dataset(f"busy-{self.done}", self._made.document, reports(self._made, count=60))
            self._attacker.ask(request(1000 + self.done, self._digest, noise=100.0))
            self.done += 1

    def __enter__(self) -> "Busy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def lose(
    made: LocalCluster, copy: Path, with_keys: bool = False
) -> tuple[Attacker, str, str, list[bytes], list[SignedReceipt]]:
    """Work, a backup meanwhile, more work, a kill, and all but the anchor gone; then the backup put back."""
    helper, attacker = made.helpers[0], Attacker(made)
    digest = attacker.dataset("before", made.document, reports(made))
    attacker.ask(request(1, digest))
    with Busy(attacker, made, digest) as busy:
        said = run("backup", helper, "--to", copy, *(["--with-keys"] if with_keys else []))
    assert "files" in said
    assert busy.done
    # Afterwards: another dataset, asked for its whole budget, and one question more about the first.
    stored = reports(made)
    later = attacker.dataset("after", made.document, stored)
    attacker.ask(request(2, later, noise=1 / 8))
    attacker.ask(request(3, digest, noise=1 / 2))
    held = fetched(made, helper)
    helper.process.kill()
    shutil.rmtree(helper.folder)
    run("restore", helper, "--from", copy)
    if not with_keys:
        run("rotate", helper, "--identity", made.folder / f"{helper.name}.key")
    with pytest.raises(ServiceAway):
        helper.process.start()
    return attacker, digest, later, stored, held


def written(path: Path, receipts: list[SignedReceipt]) -> Path:
    path.write_bytes(b"".join(each.encode() + b"\n" for each in receipts))
    return path


def test_a_disk_is_lost_and_the_receipts_are_not(running, tmp_path, capfd):
    helper = running.helpers[0]
    # With its keys, so that it could open again what it opened before.
    attacker, digest, later, stored, held = lose(running, tmp_path / "copy", with_keys=True)
    assert "put back from a backup" in capfd.readouterr().err
    before = spent(running, held, helper)
    assert before == pytest.approx(8)
    few = written(tmp_path / "few.jsonl", held[:-1])
    assert "ReceiptsMissing" in run("recover", helper, "--receipts", few, code=1)
    with pytest.raises(ServiceAway):
        helper.process.start()
    said = run("recover", helper, "--receipts", written(tmp_path / "held.jsonl", held))
    assert "receipts put back" in said
    helper.process.start()
    # The very chain that was seen before, and what it says was spent.
    assert [each.digest for each in fetched(running, helper)] == [each.digest for each in held]
    assert spent(running, fetched(running, helper), helper) == pytest.approx(before)
    assert attacker.tries(request(1, digest)) == "answered"
    assert attacker.tries(request(3, digest, noise=1 / 2)) == "answer-lost"
    assert attacker.tries(request(2, later, noise=1 / 8)) == "dataset-lost"
    # Reports that were frozen, and some that were not: none is taken again, by this helper.
    (ours, _) = attacker.send("replay", running.document, stored)
    assert ours.refused == {"BeforeRecovery": len(stored)}
    # Of the first dataset 1 + 2 of 8 is spent, and a little by the busy one: 4 fits, and then no more.
    assert attacker.tries(request(4, digest, noise=1 / 4)) == "answered"
    assert attacker.tries(request(5, digest)) == "budget-exhausted"
    again = fetched(running, helper)
    assert [each.digest for each in again[: len(held)]] == [each.digest for each in held]
    assert spent(running, again, helper) == pytest.approx(8)


def test_a_disk_is_lost_and_some_receipts_are_too(running, tmp_path):
    helper = running.helpers[0]
    attacker, digest, _, _, held = lose(running, tmp_path / "copy", with_keys=True)
    some = written(tmp_path / "some.jsonl", held[:-1])
    said = run(
        "recover", helper, "--receipts", some, "--close", running.origin, input="y\n"
    )  # The last one left, and nobody has it.
    assert "closed up to version 1" in said
    helper.process.start()
    assert attacker.tries(request(1, digest)) == "answered"
    assert attacker.tries(request(9, digest, noise=100.0)) == "account-closed"
    running.publish(SETTINGS)
    chain = fetched(running, helper)
    gap = chain[-1].claimed()
    assert isinstance(gap, RecoveredReceipt)
    assert (gap.number, gap.last_kept) == (len(held) + 1, len(held) - 1)
    # Whoever has the lost receipt goes on from it; whoever has not knows that one is missing.
    for mine, lost in (([*held, chain[-1]], 0), (chain, 1)):
        found = receipt_verification.verify(mine, running.origin, helper.name, running.documents)
        assert found.lost == lost


def test_reports_of_after_a_recovery_are_taken(running, tmp_path, monkeypatch):
    """Two days later: browsers' reports are newer than the recovery. Here the recovery is moved back."""
    helper = running.helpers[0]
    attacker, _, _, stored, held = lose(running, tmp_path / "copy")
    days = 20 * 86_400
    monkeypatch.setattr("maskedlark.helper.recovery.hour_of", lambda seconds: hour_of(seconds - days))
    run("recover", helper, "--receipts", written(tmp_path / "held.jsonl", held))
    helper.process.start()
    fresh = attacker.dataset("fresh", running.document, reports(running))
    assert attacker.tries(request(50, fresh, noise=1 / 8)) == "answered"
    with pytest.raises(MaskedLarkError):
        attacker.ask(request(51, fresh))
    assert spent(running, fetched(running, helper), helper) == pytest.approx(8)
    assert stored
