import os
import signal
import subprocess
import sys

import pytest

from maskedlark.storage import file_lock
from maskedlark.storage.errors import LockHeld

FORKS = """
import os, pathlib, sys, time
from maskedlark.storage import file_lock
reader, writer = os.pipe()
with file_lock.held(pathlib.Path(sys.argv[1])) as handle:
    if not os.fork():
        os.write(handle, b"of a child")
        os.write(writer, b"it runs")
        time.sleep(600)
    os.read(reader, 7)
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def test_a_child_that_outlives_a_killed_process_does_not_hold_its_lock(tmp_path):
    path = tmp_path / "lock"
    words = [sys.executable, "-W", "ignore", "-c", FORKS, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            with pytest.raises(LockHeld), file_lock.held(path, wait=False):
                pytest.fail("it is held")
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
            with file_lock.held(path, wait=False):
                assert not path.read_bytes(), "the child writes elsewhere"
        finally:
            os.killpg(other.pid, signal.SIGKILL)


def test_a_child_that_leaves_the_block_does_not_release_the_lock_of_its_parent(tmp_path):
    path = tmp_path / "lock"
    leaves = FORKS.replace("time.sleep(600)", "sys.exit()", 1).replace("print", "os.wait(); print")
    words = [sys.executable, "-W", "ignore", "-c", leaves, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LockHeld), file_lock.held(path, wait=False):
            pytest.fail("it is held")
        other.kill()
