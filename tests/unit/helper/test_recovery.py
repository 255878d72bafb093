"""A helper whose disk was lost: what it gave away stays counted, whatever is left of it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, MetaData, Row, Table, delete, insert, select

from maskedlark.clock import FixedClock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.helper import backup, ledger_database
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.ids import Ids
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.recovery import RecoveryOptions, recover
from maskedlark.helper.tables import FLOOR
from maskedlark.ledger import receipt_verification
from maskedlark.ledger.errors import (
    AccountClosed,
    AnswerLost,
    BadReceipt,
    BudgetExhausted,
    LedgerBehind,
    ReceiptsMissing,
    RequestIdReused,
)
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import RecoveredReceipt, ReleaseReceipt
from maskedlark.ledger.rows import ChainHead
from maskedlark.randomness import SystemRandomness
from maskedlark.release.errors import BadSeed
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import DatasetLost, UnknownDataset
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire.acceptance import MAX_HOURS_AHEAD
from maskedlark.wire.datasets import State, pack
from tests.unit.helper import cases
from tests.unit.helper.lost import LITTLE_NOISE, Lost, ask, freeze, send
from tests.unit.helper.world import DAY_S, NAME, NOW, ORIGIN, running, settings, world
from tests.unit.parameters.cases import HELPER_KEYS, make

LATER = FixedClock(NOW + 5 * DAY_S)
"""When browsers have made reports that are newer than the recovery."""


@pytest.fixture
def lost(tmp_path) -> Lost:
    return Lost(tmp_path)


def refuses_to_start(found: Lost) -> None:
    with (
        pytest.raises(LedgerBehind, match="put back from a backup"),
        running(found.folder, found.config, LATER),
    ):
        pytest.fail("it must not start")


def spent(found: Lost, chain) -> float:
    """What a third party adds up."""
    verified = receipt_verification.verify(chain, ORIGIN, NAME, [found.document])
    return verified.spent()[found.document.digest.hex()].epsilon


def test_with_all_receipts_everything_stays_counted(lost):
    lost.put_back()
    with (
        pytest.raises(LedgerBehind, match="put back from a backup"),
        running(lost.folder, lost.config, LATER),
    ):
        pytest.fail("it must not start")
    done = lost.recover()
    assert done.put_back == {ORIGIN: 3}
    assert (done.lost, done.closed, done.aborted) == ({ORIGIN: 1}, {}, 1)
    with running(lost.folder, lost.config, LATER) as at:
        # Monday has cost 2 of 8, Tuesday all of it.
        assert ask(at, lost.monday, number=1) == lost.first, "what the backup has is answered as it was"
        with pytest.raises(AnswerLost):
            ask(at, lost.monday, number=2)
        with pytest.raises(RequestIdReused):
            ask(at, lost.monday, number=2, noise=3.0)
        with pytest.raises(DatasetLost):
            ask(at, lost.tuesday, number=3)
        with pytest.raises(UnknownDataset):
            at.remote().get("/v2/datasets/open")
        ask(at, lost.monday, number=20, noise=1 / 6)
        with pytest.raises(BudgetExhausted):
            ask(at, lost.monday, number=21)
        # New reports are taken, and the chain goes on behind the old one.
        fresh = freeze(at, "fresh", send(at, lost.document, "fresh", at.reports(lost.document)))
        ask(at, fresh, number=22, noise=1 / 8)
        chain = at.service.ledger.receipts(ORIGIN)
        assert [each.digest for each in chain[:5]] == [each.digest for each in lost.receipts]
        assert spent(lost, chain) == pytest.approx(8)


def test_reports_of_a_lost_dataset_sent_again(lost):
    """The attack: what Tuesday gave away for its whole budget is given away again, in another dataset."""
    lost.put_back()
    done = lost.recover()
    assert done.floor == hour_of(NOW) + MAX_HOURS_AHEAD
    with running(lost.folder, lost.config, lost.clock) as at:
        assert send(at, lost.document, "again", lost.parts).refused == {"BeforeRecovery": len(lost.parts)}
    database = open_database(lost.config.database_url)
    with database.write() as connection:
        connection.execute(delete(FLOOR))
    database.close()
    # Without the floor the ids are unknown, the dataset has another digest, and so an account of its own.
    with running(lost.folder, lost.config, lost.clock) as at:
        again = freeze(at, "naive", send(at, lost.document, "naive", lost.parts[:59]))
        ask(at, again, number=30, noise=1 / 8)
        released = [each.claimed() for each in at.service.ledger.receipts(ORIGIN)]
    paid = [
        each.charge.columns / each.charge.noise
        for each in released
        if isinstance(each, ReleaseReceipt) and {lost.tuesday, again} & {*each.datasets}
    ]
    assert sum(paid) == pytest.approx(16), "each of these reports has cost twice its budget"


def test_the_floor_is_the_last_hour_that_could_have_been_taken(tmp_path, database_url):
    """A browser's clock may be ahead: the latest report that a helper takes is the last that it refuses."""
    latest = cases.HOUR + MAX_HOURS_AHEAD
    reports = cases.measured(4, [cases.HOUR, latest, latest + 1, latest + 2])
    with cases.helper(tmp_path, database_url) as (datasets, _, clock):
        datasets.open(cases.DOCUMENT, "before", Purpose.AGGREGATE)
        answer = datasets.add(ORIGIN, "before", 0, reports.chunk(0))
        assert answer.refused == {"FromTheFuture": 2}
        datasets.abort(ORIGIN, "before")
        database = open_database(database_url)
        ids = Ids(database, tmp_path)
        with database.write() as connection:
            ids.raise_floor(connection, hour_of(clock.now()) + MAX_HOURS_AHEAD)
        database.close()
        clock.seconds += MAX_HOURS_AHEAD * 3600
        datasets.open(cases.DOCUMENT, "after", Purpose.AGGREGATE)
        answer = datasets.add(ORIGIN, "after", 0, reports.chunk(0))
        assert answer.refused == {"BeforeRecovery": 2}
        assert answer.accepted == pack(np.array([False, False, True, True]))


def test_nothing_was_lost(tmp_path):
    lost = Lost(tmp_path)
    shutil.rmtree(tmp_path / "backup")
    lost.back_up()
    lost.put_back()
    done = lost.recover([])
    assert (done.put_back, done.closed, done.floor) == ({}, {}, None)
    with running(tmp_path, lost.config, lost.clock) as at:
        assert send(at, lost.document, "new", at.reports(lost.document)).refused == {}
        assert send(at, lost.document, "again", lost.parts).refused == {"Replayed": len(lost.parts)}


def test_a_ledger_that_is_no_copy_is_left_alone(lost):
    done = lost.recover()
    assert (done.put_back, done.aborted, done.floor) == ({}, 0, None)
    with running(lost.folder, lost.config, lost.clock) as at:
        assert State.decode(at.remote().get("/v2/datasets/open")).state == "open"


@pytest.mark.parametrize("kept", [0, 3, 4])
def test_missing_receipts_are_refused(lost, kept):
    lost.put_back()
    with pytest.raises(ReceiptsMissing, match=r"after \d+ up to 5"):
        lost.recover(lost.receipts[:kept])
    with pytest.raises(ReceiptsMissing, match=r"after 2 up to 5"):
        lost.recover([*lost.receipts[:2], *lost.receipts[3:]])
    with pytest.raises(LedgerBehind), running(lost.folder, lost.config, lost.clock):
        pytest.fail("a refused recovery changes nothing")


@pytest.mark.parametrize("kept", [0, 3, 4])
def test_an_account_with_missing_receipts_is_closed(lost, kept):
    lost.put_back()
    done = lost.recover(lost.receipts[:kept], close=[ORIGIN])
    assert done.closed == {ORIGIN: 1}
    with running(lost.folder, lost.config, LATER) as at:
        assert ask(at, lost.monday, number=1) == lost.first
        with pytest.raises(AccountClosed):
            ask(at, lost.monday, number=40)
        # Not by new reports either: their sources may have others in what was lost.
        fresh = freeze(at, "fresh", send(at, lost.document, "fresh", at.reports(lost.document)))
        with pytest.raises(AccountClosed):
            ask(at, fresh, number=41)
        # A new document has sources of its own.
        second = at.publish(version=2, previous=lost.document.digest.hex(), **LITTLE_NOISE)
        newer = freeze(at, "newer", send(at, second, "newer", at.reports(second)))
        ask(at, newer, number=42, noise=1 / 8)
        with pytest.raises(BudgetExhausted):
            ask(at, newer, number=43)
        chain = at.service.ledger.receipts(ORIGIN)
    # Anyone can go on: with what the helper has, with some more, and with all that it lost.
    gap = next(each for each in chain if isinstance(each.claimed(), RecoveredReceipt))
    assert gap.claimed().number == 6
    assert gap.claimed().previous == lost.receipts[-1].digest.hex()
    behind = [each for each in chain if each.claimed().number > 5]
    for held in (len(chain) - len(behind), 4, 5):
        mine = [*lost.receipts[:held], *behind]
        verified = receipt_verification.verify(mine, ORIGIN, NAME, [lost.document, second])
        assert verified.lost == 5 - held
        assert verified.spent()[second.digest.hex()].epsilon == pytest.approx(8)


def test_without_an_anchor_everything_is_closed(lost):
    lost.put_back()
    shutil.rmtree(lost.folder / "anchor")
    with pytest.raises(ReceiptsMissing, match="no anchor"):
        lost.recover()
    assert lost.recover(lost.receipts[:4], anchor_lost=True).closed == {ORIGIN: 1}
    with running(lost.folder, lost.config, LATER) as at:
        with pytest.raises(AccountClosed):
            ask(at, lost.monday, number=40)
        chain = at.service.ledger.receipts(ORIGIN)
    # Who holds more sees that there are two histories.
    with pytest.raises(BadReceipt, match="does not follow"):
        receipt_verification.verify([*lost.receipts, chain[-1]], ORIGIN, NAME, [lost.document])


def test_an_anchor_that_is_an_old_copy_too_is_noticed(lost):
    """Put back with the ledger it agrees with it: the ledger's own mark tells, and any later receipt."""
    lost.put_back()
    shutil.rmtree(lost.folder / "anchor")
    FileAnchor(lost.folder / "anchor").write(ORIGIN, ChainHead(2, lost.receipts[1].digest))
    with (
        pytest.raises(LedgerBehind, match="put back from a backup"),
        running(lost.folder, lost.config, LATER),
    ):
        pytest.fail("it must not start")
    with pytest.raises(ReceiptsMissing, match="it is an old copy too"):
        lost.recover(lost.receipts[:3])
    assert lost.recover(lost.receipts[:3], anchor_lost=True).closed == {ORIGIN: 1}


def test_a_backup_is_never_accepted_as_the_newest_ledger(lost):
    lost.put_back()
    shutil.rmtree(lost.folder / "anchor")
    database = open_database(lost.config.database_url)
    anchor, keyring = FileAnchor(lost.folder / "anchor"), Keyring(lost.config.keys_folder, NAME)
    with pytest.raises(LedgerBehind, match="put back from a backup"):
        Ledger(database, anchor, keyring, LATER, SystemRandomness()).reset_anchors()
    database.close()


def test_receipts_of_another_helper_or_history_are_refused(lost, tmp_path):
    lost.put_back()
    other = Lost(tmp_path / "other")
    with pytest.raises(BadReceipt, match="two ledgers"):
        lost.recover(other.receipts)
    with pytest.raises(BadReceipt, match="two ledgers"):
        lost.recover([*lost.receipts, *other.receipts[3:]])
    bent = lost.receipts[3].model_copy(update={"receipt": lost.receipts[4].receipt})
    with pytest.raises(BadReceipt, match="verify"):
        lost.recover([bent])


def test_a_second_loss(lost):
    """The backup of before the first recovery once more: what that one closed stays closed."""
    lost.put_back()
    lost.recover(lost.receipts[:4], close=[ORIGIN])
    with running(lost.folder, lost.config, LATER) as at:
        chain = at.service.ledger.receipts(ORIGIN)
    lost.put_back()
    with pytest.raises(ReceiptsMissing):
        lost.recover(chain)
    assert lost.recover(chain, close=[ORIGIN]).closed == {ORIGIN: 1}
    with running(lost.folder, lost.config, LATER) as at:
        with pytest.raises(AccountClosed):
            ask(at, lost.monday, number=40)
        verified = receipt_verification.verify(
            at.service.ledger.receipts(ORIGIN), ORIGIN, NAME, [lost.document]
        )
    assert verified.lost == 1


def test_keys_that_were_lost_too_are_made_anew(lost):
    lost.put_back()
    shutil.rmtree(lost.config.keys_folder)
    Keyring(lost.config.keys_folder, NAME).rotate(
        HELPER_KEYS[0], lost.config.address, NOW, SystemRandomness(), least_sequence=2
    )
    lost.recover()
    with running(lost.folder, lost.config, LATER) as at:
        before = spent(lost, at.service.ledger.receipts(ORIGIN))
        # What masked the answers over it was sealed to a key that is lost: nothing is charged for asking.
        with pytest.raises(BadSeed, match="ask over newer datasets"):
            ask(at, lost.monday, number=20, noise=1 / 6)
        assert spent(lost, at.service.ledger.receipts(ORIGIN)) == before


def test_a_document_that_the_service_hides_cannot_be_closed(lost):
    lost.put_back()
    lost.document = make(version=2, previous="00" * 32)
    with pytest.raises(ReceiptsMissing, match="does not show all documents"):
        lost.recover(lost.receipts[:4], close=[ORIGIN])


class Dumped(Lost):
    """The same with a server's database: dumped and put back by other means than ours."""

    def back_up(self) -> None:
        backup.back_up(self.config, self.folder / "backup", self.clock, dumped=True)
        self.rows: dict[Table, Sequence[Row[Any]]] = {}
        tables = MetaData()
        with self._connection() as connection:
            tables.reflect(connection)
            for table in tables.sorted_tables:
                self.rows[table] = connection.execute(select(table)).all()

    def put_back(self) -> None:
        for name in ("columns", "parameters"):
            shutil.rmtree(self.config.folder / name)
        backup.put_back(self.config, self.folder / "backup")
        with self._connection() as connection:
            for table in reversed(self.rows):
                connection.execute(delete(table))
            for table, rows in self.rows.items():
                if rows:
                    connection.execute(insert(table), [row._asdict() for row in rows])

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        database = open_database(self.config.database_url)
        with database.write() as connection:
            yield connection
        database.close()


def test_a_servers_database_is_recovered_too(tmp_path, postgresql_url):
    lost = Dumped(tmp_path, database=postgresql_url)
    lost.put_back()
    # A dump cannot say of itself that it is one: here the anchor tells.
    with pytest.raises(LedgerBehind, match="lacks receipt 5"), running(tmp_path, lost.config, LATER):
        pytest.fail("it must not start")
    done = lost.recover()
    assert (done.put_back, done.lost, done.aborted) == ({ORIGIN: 3}, {ORIGIN: 1}, 1)
    with running(tmp_path, lost.config, lost.clock) as at:
        assert ask(at, lost.monday, number=1) == lost.first
        assert send(at, lost.document, "again", lost.parts).refused == {"BeforeRecovery": len(lost.parts)}
        assert spent(lost, at.service.ledger.receipts(ORIGIN)) == pytest.approx(8)


def test_a_check_key_that_was_pinned_after_the_backup_is_pinned_after_a_recovery(tmp_path):
    """By its receipt; the key itself follows from the identity, also in keys that were made anew."""
    changes = {"anchor": str(tmp_path / "anchor")}
    config, clock = settings(tmp_path, **changes), FixedClock(NOW)
    with world(tmp_path, **changes) as at:
        document = at.publish(checks="bits")
        at.frozen(at.publish(version=2, previous=document.digest.hex()), "monday")
        backup.back_up(config, tmp_path / "backup", clock)
        at.remote().post(f"/v2/check-keys/{document.digest.hex()}", b"", NO_BODY_TYPE)
        key, receipts = at.service.check_keys.of(document), at.service.ledger.receipts(ORIGIN)
    for name in ("database", "columns", "parameters", "keys"):
        shutil.rmtree(config.folder / name)
    Keyring(config.keys_folder, NAME).rotate(HELPER_KEYS[0], config.address, NOW, SystemRandomness())
    backup.put_back(config, tmp_path / "backup")
    recover(config, receipts, RecoveryOptions(), lambda _: [], clock, SystemRandomness())
    with running(tmp_path, config, clock) as at:
        assert at.service.check_keys.of(document) == key
        assert at.service.ledger.pinned(document) == key.digest


def without_database(found: Lost, *others: str) -> None:
    """The database is lost, and what else is named."""
    for name in ("database", *others):
        shutil.rmtree(found.folder / name if name == "anchor" else found.config.folder / name)


@pytest.mark.parametrize("others", [("anchor",), ("anchor", "columns")])
@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_ledger_does_not_begin_where_a_helper_has_run(lost, others, is_there):
    """With the anchor lost too, only keys, columns, or a file that says so, show that it has."""
    without_database(lost, *others)
    database = lost.config.folder / "database" / "helper.sqlite"
    if is_there:
        database.parent.mkdir()
        database.touch()
    for _ in range(2):
        with (
            pytest.raises(LedgerBehind, match=r"helper restore.*helper recover.*--anchor-lost"),
            running(lost.folder, lost.config, LATER),
        ):
            pytest.fail("it must not start")
    assert database.exists() == is_there, "a backup can be restored there"
    assert (lost.config.columns_folder / "1").exists() == ("columns" not in others), "nothing is removed"
    if not is_there:
        backup.put_back(lost.config, lost.folder / "backup")
        refuses_to_start(lost)


def test_a_helper_of_an_earlier_version_has_no_file_that_says_so_but_columns(lost):
    (lost.config.folder / ledger_database.NAME).unlink()
    without_database(lost, "anchor")
    with pytest.raises(LedgerBehind, match="has run"), running(lost.folder, lost.config, LATER):
        pytest.fail("it must not start")


def test_without_backup_and_anchor_it_is_recovered_with_closed_accounts(lost):
    without_database(lost, "anchor")
    with pytest.raises(ReceiptsMissing, match="--anchor-lost"):
        lost.recover()
    refuses_to_start(lost)  # Although there are tables now.
    assert lost.recover(anchor_lost=True).closed == {ORIGIN: 1}
    file = lost.config.folder / "database" / "helper.sqlite"
    assert file.stat().st_mode & 0o77 == 0, "nobody else reads seeds"
    with running(lost.folder, lost.config, LATER) as at:
        fresh = freeze(at, "fresh", send(at, lost.document, "fresh", at.reports(lost.document)))
        with pytest.raises(AccountClosed):
            ask(at, fresh, number=40)


def test_without_a_backup_all_receipts_recover_what_was_charged(lost):
    without_database(lost)
    done = lost.recover()
    assert done.put_back == {ORIGIN: len(lost.receipts)}
    with running(lost.folder, lost.config, LATER) as at:
        assert spent(lost, at.service.ledger.receipts(ORIGIN)) == spent(lost, lost.receipts)


@pytest.mark.parametrize("call", ["open_ledger_database", "Ledger", "DatasetContext", "mark_run"])
@pytest.mark.parametrize("before", [True, False])
def test_a_first_start_that_was_killed_anywhere_starts_again(tmp_path, call, before):
    """A process that ends without a trace, right before a call and right after it."""
    config = settings(tmp_path)
    Keyring(config.keys_folder, NAME).rotate(HELPER_KEYS[0], config.address, NOW, SystemRandomness())
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.helper.killed_start", tmp_path, call, str(int(before))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    for _ in range(2):
        with running(tmp_path, config, LATER) as at:
            at.service.check()
