import os
import threading
from contextlib import closing

import pytest
from pydantic import ValidationError
from sqlalchemy.engine import make_url

from maskedlark.clock import FixedClock
from maskedlark.helper.anchor import FileAnchor, open_anchor
from maskedlark.helper.database_anchor import DatabaseAnchor
from maskedlark.helper.errors import AnchorInLedger, DamagedAnchor
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.rows import ChainHead
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable
from tests.databases import fresh_database
from tests.unit.helper import world
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

FIRST, SECOND = ChainHead(1, b"\1" * 32), ChainHead(2, b"\2" * 32)
ORIGINS = ["ads.example", "ads.example:8443", "b" * 200]


def files_of(folder):
    return [each for each in folder.iterdir() if not each.name.startswith(".")]


@pytest.fixture(params=["folder", "database"])
def anchor(request, tmp_path):
    """Opens the same anchor again, each time as another process would: of every kind that there is."""
    if request.param == "folder":
        yield lambda: FileAnchor(tmp_path / "anchor")
        return
    url, opened = request.getfixturevalue("postgresql_url"), []

    def again():
        opened.append(open_database(url))
        return DatabaseAnchor(opened[-1])

    yield again
    for each in opened:
        each.close()


def test_a_mark_outlives_its_writer(anchor):
    for number, origin in enumerate(ORIGINS, start=1):
        anchor().write(origin, ChainHead(number, bytes([number]) * 32))
    for number, origin in enumerate(ORIGINS, start=1):
        assert anchor().read(origin) == ChainHead(number, bytes([number]) * 32)
    assert anchor().origins() == sorted(ORIGINS)
    assert anchor().read("other.example") is None


def test_before_the_first_mark_there_is_none(anchor):
    assert anchor().origins() == []
    assert anchor().read("ads.example") is None


def test_it_never_goes_back(anchor):
    anchor().write("ads.example", SECOND)
    anchor().write("ads.example", FIRST)
    assert anchor().read("ads.example") == SECOND


def test_of_writers_at_once_the_furthest_stays(anchor):
    marks = [ChainHead(number, bytes([number]) * 32) for number in range(1, 25)]
    shared = anchor(), anchor(), anchor()
    begin = threading.Barrier(len(marks))

    def write(place, mark):
        begin.wait(60)
        shared[place % 3].write("ads.example", mark)

    writers = [threading.Thread(target=write, args=each) for each in enumerate(marks)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert anchor().read("ads.example") == marks[-1]


def test_two_receipts_with_one_number_are_noticed(anchor):
    anchor().write("ads.example", FIRST)
    anchor().write("ads.example", FIRST)
    with pytest.raises(DamagedAnchor, match="two ledgers"):
        anchor().write("ads.example", ChainHead(1, b"\3" * 32))
    assert anchor().read("ads.example") == FIRST


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


def test_a_ledger_that_was_put_back_is_behind_it(anchor, tmp_path):
    document = cases.make()

    def ledger(name):
        database = open_database(f"sqlite:///{tmp_path / name}")
        return Ledger(
            database, anchor(), ledgers.Signs(), FixedClock(ledgers.NOW), SystemRandomness()
        ), database

    first, database = ledger("ledger.sqlite")
    ledgers.freeze(first, database, document, ledgers.DATASETS[0])
    first.check()
    database.close()
    old, database = ledger("old.sqlite")
    with pytest.raises(LedgerBehind, match="never reset"):
        old.check()
    database.close()


@pytest.mark.parametrize("change", ["number = -1", "digest = '\\x00'"])
def test_a_damaged_row_is_not_guessed_at(postgresql_url, change):
    with closing(open_database(postgresql_url)) as database:
        anchor = DatabaseAnchor(database)
        anchor.write("ads.example", SECOND)
        with database.write() as connection:
            connection.exec_driver_sql(f"UPDATE anchor_heads SET {change}")
        with pytest.raises(DamagedAnchor, match="put the newest copy back"):
            anchor.read("ads.example")


def test_the_ledgers_own_database_is_no_place_for_it_by_whatever_name(postgresql_url, tmp_path, caplog):
    """A copy that is put back would bring it along, and agree with itself."""
    alias = make_url(postgresql_url).update_query_dict({"application_name": "alias"})
    settings = world.settings(tmp_path, database=postgresql_url, anchor=_text(alias))
    with closing(open_database(postgresql_url)) as ledger:
        with pytest.raises(AnchorInLedger, match="Name another database"), open_anchor(settings, ledger):
            pytest.fail("it is the same")
        # Another database of the same server is one, and whoever puts back the whole server is told not to.
        apart = fresh_database(postgresql_url)
        settings = world.settings(tmp_path, database=postgresql_url, anchor=apart)
        with open_anchor(settings, ledger) as anchor:
            anchor.write("ads.example", FIRST)
        assert "never put back a copy of the whole server" in caplog.text
        with open_anchor(settings, ledger) as anchor:
            assert anchor.read("ads.example") == FIRST


def _text(url):
    return url.render_as_string(hide_password=False)


def test_a_helper_says_where_its_anchor_is(tmp_path):
    url = "postgresql://anchors.example/one"
    settings = world.settings(tmp_path, anchor=url)
    assert settings.anchor_url == settings.beside(tmp_path).anchor_url == url
    assert "anchors.example" not in repr(settings)
    assert world.settings(tmp_path, anchor="marks").beside(tmp_path).anchor_folder == tmp_path / "marks"
    with pytest.raises(ValidationError, match="a folder, or in a PostgreSQL database"):
        world.settings(tmp_path, anchor="sqlite:///anchor.db")
