import sqlite3

import pytest
from sqlalchemy import text

from maskedlark.storage import database as module
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable

SAID = "^the database cannot answer; try again later$"
"""To strangers: what the driver says goes to the log alone."""


@pytest.fixture
def database(tmp_path):
    opened = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("busy_timeout", 30_000),
        ("secure_delete", 1),
    ],
)
def test_it_is_durable_on_every_connection(database, pragma, value):
    database.scrub()
    with database.read() as one, database.read() as two:
        assert [each.scalar(text(f"PRAGMA {pragma}")) for each in (one, two)] == [value] * 2


def test_a_writer_has_the_lock_from_its_beginning(database, tmp_path):
    with sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None) as other:
        with database.write(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
        with database.read() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
        other.execute("ROLLBACK")
    other.close()


def test_another_process_that_keeps_it_busy_is_an_error_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0)
    database = open_database(f"sqlite:///{tmp_path / 'b.db'}")
    other = sqlite3.connect(tmp_path / "b.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match=SAID), database.write():
        pass
    other.close()
    with database.write():  # and is not busy for ever
        pass
    database.close()


def in_files(folder, content):
    return any(content in path.read_bytes() for path in folder.glob("a.db*"))


@pytest.mark.parametrize("size", [40, 100_000])
def test_what_is_deleted_is_in_no_file_once_nobody_reads(tmp_path, database, size):
    """In rows of a page, and in those that fill many."""
    secrets = [bytes([65 + number]) * size for number in range(3)]
    with database.write() as connection:
        connection.execute(text("CREATE TABLE secrets (id INTEGER PRIMARY KEY, seed BLOB)"))
        for secret in secrets:
            connection.execute(text("INSERT INTO secrets (seed) VALUES (:seed)"), {"seed": secret})
    with database.write() as connection:
        connection.execute(text("UPDATE secrets SET seed = NULL WHERE id = 1"))
        connection.execute(text("DELETE FROM secrets WHERE id = 2"))
    found = [secret[:40] for secret in secrets]
    assert [in_files(tmp_path, each) for each in found] == [True] * 3, "else there is nothing to scrub"
    with database.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM secrets")) == 2
        database.scrub()
        assert in_files(tmp_path, found[0]), "somebody reads: the next call scrubs"
    database.scrub()
    assert [in_files(tmp_path, each) for each in found] == [False, False, True]
    with database.write() as connection:
        connection.execute(text("DELETE FROM secrets"))
