"""Whether services can do their work, with real faults: disks, databases, keys and clocks of certificates."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

import maskedlark.cli
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from maskedlark.simulate.services import Process
from maskedlark.storage.disk import LEAST_ROOM
from maskedlark.wire import uploads
from tests.integration.attacker import SETTINGS
from tests.integration.uploading import PATIENCE_S, command

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def readiness(server: Process) -> str:
    """Ready, or the problem's type."""
    answer = httpx.get(f"{server.address}/ready", timeout=PATIENCE_S, trust_env=False)
    assert answer.status_code == (200 if "status" in answer.json() and "type" not in answer.json() else 503)
    return str(answer.json().get("type", "ready")).removeprefix("/problems/")


def becomes(server: Process, wanted: str) -> None:
    until(lambda: readiness(server) == wanted)


def test_files_that_may_not_grow_are_not_ready(tmp_path):
    with Process(command(f"sqlite:///{tmp_path / 'reports.db'}", tmp_path)[1:]) as server:
        becomes(server, "ready")
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
        becomes(server, "disk-full")
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        becomes(server, "ready")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of some megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={3 * LEAST_ROOM}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_not_ready(disk, tmp_path):
    with Process(command(f"sqlite:///{disk / 'reports.db'}", tmp_path)[1:]) as server:
        becomes(server, "ready")
        (disk / "filling").write_bytes(bytes(5 * LEAST_ROOM // 2))
        becomes(server, "disk-full")
        (disk / "filling").unlink()
        becomes(server, "ready")


def psql(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_database_that_only_reads_is_not_ready(postgresql_url, tmp_path):
    name = make_url(postgresql_url).database
    others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    others += "AND datname = current_database()"
    with Process(command(postgresql_url, tmp_path)[1:]) as server:
        becomes(server, "ready")
        psql(postgresql_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on', others)
        becomes(server, "storage-unavailable")
        change = f'ALTER DATABASE "{name}" RESET default_transaction_read_only'
        psql(postgresql_url, "SET default_transaction_read_only = off", change, others)
        becomes(server, "ready")


@pytest.fixture
def away(postgresql_url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a server that is away, and what brings it back."""
    url = make_url(postgresql_url)
    with tempfile.TemporaryDirectory() as folder:  # A socket's path must be short.
        link = Path(folder) / "s"
        moved = url.update_query_dict({"host": str(link)}).render_as_string(hide_password=False)
        yield moved, lambda: link.symlink_to(str(url.query["host"]))


def waiting(words: list[str]) -> "subprocess.Popen[str]":
    """A service that has said that it waits."""
    made = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert made.stderr is not None
    for line in made.stderr:
        if "waiting for the database" in line:
            return made
    raise AssertionError(f"it ended with {made.wait()}")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_service_waits_for_its_database_and_hears_signals(away, tmp_path, processes):
    url, come_back = away
    words = command(url, tmp_path)[1:]
    with (tmp_path / "adserver.toml").open("a") as settings:
        settings.write(f"[serving]\nprocesses = {processes}\n")
    with waiting(words) as stopped:
        stopped.terminate()
        assert stopped.wait(PATIENCE_S) == 0
    with waiting(words) as made:
        made.send_signal(signal.SIGHUP)
        come_back()
        assert made.stdout is not None
        assert made.stdout.readline().startswith("listening on ")
        made.terminate()
        assert made.wait(PATIENCE_S) == 0


def test_a_database_that_is_missing_is_refused_at_once(postgresql_url, tmp_path):
    url = make_url(postgresql_url).set(database="nowhere").render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, *command(url, tmp_path)[1:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "UnsupportedDatabase: the database refuses" in done.stderr


def test_limits_change_while_it_runs(tmp_path):
    words, path = command(f"sqlite:///{tmp_path / 'reports.db'}", tmp_path)[1:], tmp_path / "adserver.toml"
    good = path.read_text()
    path.write_text(f"{good}[limits]\nbody_bytes = 2000\n")

    def status() -> int:
        answer = httpx.post(
            f"{server.address}/v2/reports",
            content=bytes(4000),
            headers={"content-type": uploads.CONTENT_TYPE},
            trust_env=False,
        )
        return answer.status_code

    with Process(words) as server:
        assert status() == 413
        path.write_text("nonsense")
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert status() == 413
        path.write_text(good)
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: status() == 400)  # It is read now, and is no upload.
        assert server.stop() == 0


def test_a_helper_with_keys_from_before_a_rotation_is_not_ready(tmp_path):
    with local_cluster(tmp_path, SETTINGS, SystemRandomness(), 2) as made:
        helper = made.helpers[0]

        def run(name: str, *arguments: object, typed: str | None = None) -> None:
            line = ["helper", name, "--config", helper.config, *arguments]
            done = RUN(maskedlark.cli.app, [*map(str, line)], input=typed)
            assert done.exit_code == 0, done.output

        rotate = "rotate", "--identity", tmp_path / f"{helper.name}.key"
        run("backup", "--to", tmp_path / "copy", "--with-keys")
        run(*rotate)
        becomes(helper.process, "ready")
        helper.process.kill()
        shutil.rmtree(helper.folder)
        run("restore", "--from", tmp_path / "copy")
        run("recover", "--anchor-lost", typed="y\n")
        helper.process.start()
        assert readiness(helper.process) == "keys-behind"
        run(*rotate)
        becomes(helper.process, "ready")
