"""What every database must do for its callers; what is one database's own is in a file named after it."""

import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, ProgrammingError

from maskedlark.adserver.report_store import Reports, check_used
from maskedlark.storage import database as module
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import (
    StorageUnavailable,
    UnknownSchema,
    UnsupportedDatabase,
    UnusedDatabase,
)
from maskedlark.storage.schema import check, prepare
from tests.unit.adserver.stored import clock

ROOT = Path(__file__).parents[3]
TABLES = MetaData()
THINGS = Table(
    "things",
    TABLES,
    Column("id", LargeBinary, primary_key=True),
    Column("name", String(20), nullable=False),
    Column("small", Integer),
    Column("large", BigInteger, nullable=False),
)


@pytest.fixture
def database(database_url):
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def things(database):
    prepare(database, "things", 1, TABLES)
    return database


def rows(*ids):
    return [(bytes([each]), "a thing", None if each % 2 else each, 2**40 + each) for each in ids]


def add(database, *ids):
    with database.write() as connection:
        return database.insert_new(connection, THINGS, rows(*ids))


def found(database):
    with database.read() as connection:
        return [tuple(each) for each in connection.execute(select(THINGS).order_by(THINGS.c.id))]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://localhost/reports", "begins with sqlite: or postgresql:"),
        ("reports.db", "sqlite:///reports.db"),
        ("", "sqlite:///reports.db"),
        ("sqlite://", "memory is not durable"),
        ("sqlite:///:memory:", "memory is not durable"),
        ("postgresql+pg8000://localhost/reports", "begin the URL with postgresql:"),
    ],
)
def test_a_database_that_keeps_nothing_for_us_is_refused(url, says):
    with pytest.raises(UnsupportedDatabase, match=says):
        open_database(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://somebody:a-password@host:port/reports",
        "postgresql://somebody:a@-password@/reports",
        "postgresql://somebody:a-password@host:99999999999999999999x/reports",
        "a-password",
    ],
)
def test_a_url_that_is_none_is_refused_and_not_shown(url):
    with pytest.raises(UnsupportedDatabase) as caught:
        open_database(url)
    assert "-password" not in "".join(traceback.format_exception(caught.value))


def test_what_has_to_be_there_is_not_made(tmp_path):
    path = tmp_path / "reports.db"
    with pytest.raises(UnusedDatabase, match=r"no database .*reports\.db: check the path"):
        open_database(f"sqlite:///{path}", make=False)
    assert not path.exists()
    open_database(f"sqlite:///{path}").close()
    open_database(f"sqlite:///{path}", make=False).close()


def test_a_database_without_reports_is_not_an_ad_servers(database):
    with pytest.raises(UnusedDatabase, match="no ad server has used this database"):
        check_used(database)
    Reports(database, clock())
    check_used(database)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(UnsupportedDatabase, match=r"there is no folder .*nowhere for reports\.db: make it"):
        open_database(f"sqlite:///{tmp_path / 'nowhere' / 'reports.db'}")


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
def test_what_is_no_database_is_said_at_once(tmp_path, content):
    path = tmp_path / "reports.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UnsupportedDatabase, match=r"the database refuses: (file is not|unable)"):
        open_database(f"sqlite:///{path}")


@pytest.mark.parametrize("many", [0, 100])
def test_new_rows_are_inserted_and_taken_keys_left_as_they_are(things, many):
    """A database may do it in another way for many rows than for few."""
    more = range(10, 10 + many)
    assert add(things, 1, 2, 3) == 3
    with things.write() as connection:
        others = [(bytes([each]), "another", 7, 7) for each in (2, 3, 4, *more)]
        assert things.insert_new(connection, THINGS, others[3:]) == many
        assert things.insert_new(connection, THINGS, others) == 1
        assert things.insert_new(connection, THINGS, others) == 0
        assert things.insert_new(connection, THINGS, []) == 0
    assert found(things) == [*rows(1, 2, 3), *others[2:]]


def test_a_write_that_raises_leaves_nothing(things):
    def failing():
        with things.write() as connection:
            things.insert_new(connection, THINGS, rows(1))
            raise RuntimeError("after the insert")

    with pytest.raises(RuntimeError, match="after the insert"):
        failing()
    assert found(things) == []


def test_a_reader_sees_one_state_and_waits_for_no_writer(things):
    add(things, 1)
    count = select(func.count()).select_from(THINGS)
    with things.read() as reading:
        assert reading.scalar(count) == 1
        with things.write() as writing:
            things.insert_new(writing, THINGS, rows(2))
            assert reading.scalar(count) == 1
        assert reading.scalar(count) == 1
    assert len(found(things)) == 2


def test_writers_who_lock_what_they_read_lose_no_update(things):
    add(things, 2)
    start = threading.Barrier(4)

    def count_up():
        start.wait()
        for _ in range(10):
            with things.write() as connection:
                chosen = select(THINGS.c.large).where(THINGS.c.id == bytes([2])).with_for_update()
                before = connection.execute(chosen).scalar_one()
                connection.execute(update(THINGS).values(large=before + 1))

    run_together(count_up, 4)
    assert found(things)[0][3] == 2**40 + 2 + 40


def test_writers_who_are_alone_lose_no_update(things):
    start = threading.Barrier(4)

    def append():
        start.wait()
        for _ in range(10):
            with things.write() as connection:
                things.alone(connection, "things")
                last = connection.scalar(select(func.max(THINGS.c.large))) or 0
                row = {"id": b"%d" % (last + 1), "name": "next", "large": last + 1}
                connection.execute(insert(THINGS).values(row))

    run_together(append, 4)
    assert sorted(each[3] for each in found(things)) == list(range(1, 41))


def run_together(work, count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_settling_waits_for_those_who_write(things):
    settled = threading.Event()

    def settle():
        things.settle()
        settled.set()

    waiting = threading.Thread(target=settle)
    with things.write() as connection:
        things.insert_new(connection, THINGS, rows(1))
        waiting.start()
        assert not settled.wait(0.2)
    waiting.join(10)
    assert settled.is_set()
    assert len(found(things)) == 1
    assert add(things, 2) == 1  # and nobody waits for one who settled


def test_a_database_that_stays_busy_is_an_error_of_ours(database_url, monkeypatch):
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.05)
    database = open_database(database_url)
    with database.write() as connection:
        database.alone(connection, "things")
        with pytest.raises(StorageUnavailable, match=r"try again later$"), database.write() as other:
            database.alone(other, "things")
        with pytest.raises(StorageUnavailable, match=r"try again later$"):
            database.settle()
    with database.write() as connection:  # and is not busy for ever
        database.alone(connection, "things")
    database.close()


def test_what_was_to_be_stored_is_in_no_error_and_no_log(things, caplog):
    secret = "a secret of ours"
    row = {"id": secret.encode(), "name": secret, "large": 1}

    def store():
        with things.write() as connection:
            connection.execute(insert(THINGS).values(row))

    store()
    with pytest.raises(IntegrityError) as caught:
        store()
    hexadecimal = secret.encode().hex()
    said = [str(caught.value), str(caught.value.orig), caplog.text]
    assert not any(word in each for each in said for word in (secret, hexadecimal))
    # Rows that no conflict explains: the fast way in must not quote them either.
    bad = [(secret.encode() + bytes([each]), None, None, 1) for each in range(100)]
    with pytest.raises(IntegrityError) as caught, things.write() as connection:
        things.insert_new(connection, THINGS, bad)
    said = [str(caught.value), str(caught.value.orig), caplog.text]
    assert not any(word in each for each in said for word in (secret, hexadecimal))


def test_a_statement_that_is_wrong_is_no_error_of_the_database(database):
    expected = ProgrammingError if "postgresql" in str(database.engine.url) else StorageUnavailable
    with pytest.raises(expected), database.read() as connection:
        connection.execute(text("SELECT * FROM nothing"))


def test_tables_of_another_version_are_refused(things):
    prepare(things, "things", 1, TABLES)
    with pytest.raises(UnknownSchema, match="version 1, this package knows 2"):
        prepare(things, "things", 2, TABLES)


PREPARE = """
import sys
from maskedlark.storage.engine import open_database
from maskedlark.storage.schema import check, prepare
from tests.unit.storage.test_engine import TABLES
database = open_database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(20):
    prepare(database, f"things", 1, TABLES)
database.close()
"""


def test_processes_that_start_at_once_all_find_the_tables(database_url):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PREPARE, database_url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    assert [each.stdout.readline() for each in started if each.stdout] == [b"ready\n"] * 3
    for each in started:
        assert each.stdin is not None
        each.stdin.write(b"\n")
        each.stdin.flush()
    for each in started:
        _, said = each.communicate(timeout=60)
        assert each.returncode == 0, said


def test_a_check_writes_durably_and_leaves_nothing(things):
    before = found_versions(things)
    check(things)
    check(things)
    assert found_versions(things) == before


def found_versions(database):
    with database.read() as connection:
        return sorted(map(tuple, connection.execute(text("SELECT name, version FROM maskedlark_schema"))))


def test_a_database_that_only_reads_does_not_pass_a_check(sqlite_url):
    database = open_database(sqlite_url)
    prepare(database, "things", 1, TABLES)
    database.engine.dispose()
    event.listen(database.engine, "connect", lambda made, _: made.execute("PRAGMA query_only = ON"))
    database.check()
    with pytest.raises(StorageUnavailable):
        check(database)
    database.close()
