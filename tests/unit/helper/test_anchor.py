import os
import threading

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.errors import DamagedAnchor
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.rows import ChainHead
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

FIRST, SECOND = ChainHead(1, b"\1" * 32), ChainHead(2, b"\2" * 32)
ORIGINS = ["ads.example", "ads.example:8443", "b" * 200]


def files_of(folder):
    return [each for each in folder.iterdir() if not each.name.startswith(".")]


def test_a_mark_outlives_its_writer(tmp_path):
    for number, origin in enumerate(ORIGINS, start=1):
        FileAnchor(tmp_path).write(origin, ChainHead(number, bytes([number]) * 32))
    for number, origin in enumerate(ORIGINS, start=1):
        assert FileAnchor(tmp_path).read(origin) == ChainHead(number, bytes([number]) * 32)
    assert FileAnchor(tmp_path).origins() == sorted(ORIGINS)
    assert FileAnchor(tmp_path).read("other.example") is None


def test_before_the_first_mark_there_is_none(tmp_path):
    anchor = FileAnchor(tmp_path / "none")
    assert anchor.origins() == []
    assert anchor.read("ads.example") is None


def test_it_never_goes_back(tmp_path):
    anchor = FileAnchor(tmp_path)
    anchor.write("ads.example", SECOND)
    anchor.write("ads.example", FIRST)
    assert anchor.read("ads.example") == SECOND


def test_of_writers_at_once_the_furthest_stays(tmp_path):
    marks = [ChainHead(number, bytes([number]) * 32) for number in range(1, 25)]
    writers = [
        threading.Thread(target=FileAnchor(tmp_path).write, args=("ads.example", mark)) for mark in marks
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert FileAnchor(tmp_path).read("ads.example") == marks[-1]


def test_two_receipts_with_one_number_are_noticed(tmp_path):
    anchor = FileAnchor(tmp_path)
    anchor.write("ads.example", FIRST)
    anchor.write("ads.example", FIRST)
    with pytest.raises(DamagedAnchor, match="two ledgers"):
        anchor.write("ads.example", ChainHead(1, b"\3" * 32))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"origin":"ads.example","number":1}',
        b'{"origin":"ads.example","number":"1","digest":"' + b"00" * 32 + b'"}',
        b'{"origin":"ads.example","number":-1,"digest":"' + b"00" * 32 + b'"}',
        b'{"origin":"ads.example","number":1,"digest":"00"}',
        b'{"origin":"ads.example","number":1,"digest":"' + b"00" * 32 + b'","more":1}',
    ],
)
def test_a_damaged_mark_is_not_guessed_at(tmp_path, data):
    anchor = FileAnchor(tmp_path)
    anchor.write("ads.example", FIRST)
    (path,) = files_of(tmp_path)
    path.write_bytes(data)
    for use in (
        lambda: anchor.read("ads.example"),
        anchor.origins,
        lambda: anchor.write("ads.example", SECOND),
    ):
        with pytest.raises(DamagedAnchor, match="put the newest copy back"):
            use()


def test_a_mark_of_another_origin_is_damage(tmp_path):
    anchor = FileAnchor(tmp_path)
    anchor.write("ads.example", FIRST)
    (ours,) = files_of(tmp_path)
    anchor.write("other.example", SECOND)
    (theirs,) = [each for each in files_of(tmp_path) if each != ours]
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(DamagedAnchor):
        anchor.read("ads.example")


def test_what_a_crash_leaves_behind_is_no_mark(tmp_path, monkeypatch):
    anchor = FileAnchor(tmp_path)
    anchor.write("ads.example", FIRST)
    (tmp_path / ".writing-abc").write_bytes(b"half")

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageUnavailable):
            anchor.write("ads.example", SECOND)
    assert anchor.origins() == ["ads.example"]
    assert anchor.read("ads.example") == FIRST


def test_a_ledger_that_was_put_back_is_behind_it(tmp_path):
    document = cases.make()

    def ledger(name):
        database = open_database(f"sqlite:///{tmp_path / name}")
        anchor = FileAnchor(tmp_path / "anchor")
        return Ledger(
            database, anchor, ledgers.Signs(), FixedClock(ledgers.NOW), SystemRandomness()
        ), database

    first, database = ledger("ledger.sqlite")
    ledgers.freeze(first, database, document, ledgers.DATASETS[0])
    first.check()
    database.close()
    old, database = ledger("old.sqlite")
    with pytest.raises(LedgerBehind, match="never reset"):
        old.check()
    database.close()
