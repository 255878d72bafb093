"""A copy of a database that others write to: of one state, in one file."""

import sqlite3
import stat
import threading

import pytest
from sqlalchemy import text

from maskedlark.storage import backup
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import StorageUnavailable, UnsupportedDatabase


def test_a_copy_is_of_one_state_while_others_write(tmp_path, sqlite_url):
    """Two tables that every transaction keeps equal are equal in every copy."""
    database, stop, wrote = open_database(sqlite_url), threading.Event(), threading.Event()
    with database.write() as connection:
        for table in ("a", "b"):
            connection.execute(text(f"CREATE TABLE {table} (number INTEGER)"))

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with database.write() as connection:
                for table in ("a", "b"):
                    connection.execute(text(f"INSERT INTO {table} VALUES ({number})"))
            wrote.set()

    writer = threading.Thread(target=work)
    writer.start()
    try:
        for count in range(10):
            wrote.clear()
            assert wrote.wait(60)  # Where copies are fast, the writer would hardly have its turn.
            backup.copy(database, tmp_path / f"copy-{count}")
    finally:
        stop.set()
        writer.join()
        database.close()
    sizes = set()
    for count in range(10):
        path = tmp_path / f"copy-{count}"
        backup.finish(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with sqlite3.connect(path) as found:
            (a,), (b,) = (found.execute(f"SELECT count(*) FROM {name}").fetchone() for name in "ab")
            assert found.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        found.close()
        assert a == b
        sizes.add(a)
    assert len(sizes) > 1, "somebody wrote meanwhile"


def test_a_copy_never_replaces_a_file(tmp_path, sqlite_url):
    database = open_database(sqlite_url)
    (tmp_path / "copy").touch()
    with pytest.raises(FileExistsError):
        backup.copy(database, tmp_path / "copy")
    database.close()


def test_a_damaged_copy_is_noticed(tmp_path):
    (tmp_path / "copy").write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageUnavailable):
        backup.finish(tmp_path / "copy")


def test_a_server_has_its_own_tools(tmp_path, postgresql_url):
    database = open_database(postgresql_url)
    with pytest.raises(UnsupportedDatabase, match="pg_dump"):
        backup.copy(database, tmp_path / "copy")
    database.close()
