"""What only a server can do to us: go away, keep nothing, speak another way, or not be installed."""

import sys
import threading
import uuid

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from maskedlark.adserver.report_store import Outcome, Reports
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase
from tests.databases import postgresql_server
from tests.unit.adserver.stored import arrivals, clock, opened

SAID = "^the database cannot answer; try again later$"


@pytest.fixture
def database(postgresql_url):
    opened = open_database(postgresql_url)
    yield opened
    opened.close()


def run(url, statement):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def test_both_spellings_of_the_url_open_it(postgresql_url):
    assert postgresql_url.startswith("postgresql://")
    for url in (postgresql_url, postgresql_url.replace("postgresql:", "postgresql+psycopg:")):
        open_database(url).close()


def test_without_its_driver_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UnsupportedDatabase, match=r"pip install 'maskedlark\[postgresql\]'"):
        open_database("postgresql://localhost/reports")


def test_a_server_that_is_not_there_is_an_error_of_ours(tmp_path, caplog):
    with pytest.raises(StorageUnavailable, match=SAID):
        open_database(f"postgresql://somebody:a-password@/reports?host={tmp_path}")
    assert "No such file" in caplog.text
    assert "a-password" not in caplog.text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"query": {"colour": "red"}}, "colour"),
        ({"query": {"options": "-c colour.red.=1"}}, "colour"),
        ({"query": {"options": "-c work_mem=much"}}, "work_mem"),
        ({"database": "nowhere"}, "nowhere"),
        ({"username": "nobody"}, "nobody"),
    ],
)
def test_what_a_server_will_not_have_is_one_line(postgresql_url, caplog, change, says):
    url = make_url(postgresql_url)
    if "query" in change:
        change = {"query": {**url.query, **change["query"]}}
    with pytest.raises(UnsupportedDatabase, match=r"^the database refuses: ") as caught:
        open_database(url.set(**change), wait=True)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert caplog.text == "", "one line, not two"


def test_a_user_who_may_not_make_tables_is_told_so(postgresql_url):
    name = f"reader_{uuid.uuid4().hex}"
    run(postgresql_url, f"CREATE USER {name}")
    run(postgresql_url, f"GRANT USAGE ON SCHEMA public TO {name}")
    database = open_database(make_url(postgresql_url).set(username=name))
    try:
        with pytest.raises(UnsupportedDatabase, match="permission denied for schema public") as caught:
            Reports(database, clock())
        assert len(str(caught.value).splitlines()) == 1
    finally:
        database.close()
        run(postgresql_url, f"REVOKE ALL ON SCHEMA public FROM {name}")
        run(postgresql_url, f"DROP USER {name}")


@pytest.mark.parametrize(
    ("found", "kept"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")]
)
def test_commit_waits_for_the_disk_whatever_the_database_says(postgresql_url, found, kept):
    setting = f"ALTER DATABASE {make_url(postgresql_url).database} SET synchronous_commit = {found}"
    run(postgresql_url, setting)
    database = open_database(postgresql_url)
    with database.write() as one, database.write() as two:
        assert [each.scalar(text("SHOW synchronous_commit")) for each in (one, two)] == [kept] * 2
    database.close()


@pytest.mark.usefixtures("postgresql_url")
def test_a_server_that_keeps_nothing_is_refused():
    with postgresql_server(uuid.uuid4().hex) as server:
        open_database(server).close()
        run(server, "ALTER SYSTEM SET fsync = off")
        run(server, "SELECT pg_reload_conf()")
        with pytest.raises(UnsupportedDatabase, match="set fsync = on"):
            open_database(server)


def test_a_lost_connection_loses_the_transaction_alone(database, postgresql_url):
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    here = f"{others} AND datname = current_database()"

    def losing():
        with database.write() as connection:
            connection.execute(text("CREATE TABLE a (b INTEGER)"))
            run(postgresql_url, here)
            connection.execute(text("INSERT INTO a VALUES (1)"))

    with pytest.raises(StorageUnavailable, match=SAID):
        losing()
    # The next ones find a connection that answers, also when it was lost between two transactions.
    database.check()
    run(postgresql_url, here)
    with database.write() as connection:
        assert connection.scalar(text("SELECT to_regclass('a')")) is None


@pytest.mark.parametrize("count", [3, 100])
def test_a_connection_lost_while_reports_are_inserted_is_an_error_of_ours(postgresql_url, monkeypatch, count):
    database, reports = opened(postgresql_url)
    insert = type(reports)._insert

    def losing(self, connection, batch):
        (pid,) = connection.execute(text("SELECT pg_backend_pid()")).one()
        run(postgresql_url, f"SELECT pg_terminate_backend({pid}, 5000)")
        return insert(self, connection, batch)

    with monkeypatch.context() as patched:
        patched.setattr(type(reports), "_insert", losing)
        with pytest.raises(StorageUnavailable, match=SAID):
            reports.store(arrivals(count))
    assert reports.count() == 0
    assert len(reports.store(arrivals(count))) == count
    database.close()


def test_reading_cannot_write(database):
    with pytest.raises(StorageUnavailable), database.read() as connection:
        connection.execute(text("CREATE TABLE a (b INTEGER)"))


def test_uploads_that_overlap_in_opposite_orders_do_not_stop_each_other(postgresql_url):
    """Each takes its ids in one order, so no two of them can wait for each other."""
    database, reports = opened(postgresql_url)
    batch = arrivals(3000)
    outcomes: list[Outcome] = []
    failed: list[MaskedLarkError] = []
    start = threading.Barrier(2)

    def send(part):
        start.wait()
        try:
            outcomes.extend(reports.store(part))
        except MaskedLarkError as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(part,)) for part in (batch, batch[::-1])]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    assert sorted(outcomes) == [Outcome.DUPLICATE] * 3000 + [Outcome.STORED] * 3000
    database.close()
