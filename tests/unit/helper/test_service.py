"""A helper's start: alone in its folder, and nothing that it makes is open to others."""

import os
import signal
import subprocess
import sys

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper.errors import FolderInUse
from tests.unit.helper.world import DAY_S, NOW, running, settings, world

_HOLDER = """
import sys, time
from pathlib import Path
from maskedlark.helper.folder_lock import only_process
with only_process(Path(sys.argv[1])):
    print("alone", flush=True)
    time.sleep(600)
"""


def test_two_processes_do_not_run_on_one_folder(tmp_path):
    with (
        world(tmp_path) as first,
        pytest.raises(FolderInUse, match=r"^another process, \d+, runs on .*state: stop it with `kill \d+`"),
        running(tmp_path, settings(tmp_path), first.clock),
    ):
        pytest.fail("it must not start")
    with running(tmp_path, settings(tmp_path), first.clock) as again:
        assert again.http().get("/ready").status_code == 200


def test_a_process_that_was_killed_lets_go_of_its_folder(tmp_path):
    with world(tmp_path):
        pass
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "alone\n"
        with pytest.raises(FolderInUse), running(tmp_path, settings(tmp_path), FixedClock(NOW)):
            pytest.fail("it must not start")
        holder.send_signal(signal.SIGKILL)
    with running(tmp_path, settings(tmp_path), FixedClock(NOW)) as again:
        assert again.http().get("/ready").status_code == 200


def test_the_database_is_ours_alone_wherever_it_is(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    before = os.umask(0o022)
    try:
        with world(tmp_path, database=f"sqlite:///{elsewhere / 'helper.sqlite'}"):
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in elsewhere.iterdir()}
    finally:
        os.umask(before)
    assert modes["helper.sqlite"] == modes["helper.sqlite-wal"] == "0o600"
    assert set(modes.values()) == {"0o600"}


def test_a_clock_that_leaps_is_an_error_for_the_operator_and_deletes_nothing(tmp_path, caplog):
    with world(tmp_path) as helper:
        before = helper.http().get("/v2/keys").content
        helper.clock.seconds += 4000 * DAY_S
        helper.service.forget()
        (record,) = caplog.records
        assert record.levelname == "ERROR"
        assert "max_leap_days = 4001 in helper.toml" in record.message
        helper.clock.seconds = NOW
        assert helper.http().get("/ready").status_code == 200
        assert helper.http().get("/v2/keys").content == before
    caplog.clear()
    # Told that it is right, it goes on.
    late = FixedClock(NOW + 40 * DAY_S)
    with running(tmp_path, settings(tmp_path, max_leap_days=41), late):
        assert caplog.records == []
