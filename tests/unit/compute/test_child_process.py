import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from maskedlark.compute import child_process

SERVE = "import time; from maskedlark.compute import child_process\n"
SERVE += "child_process.stop_with_input(); print(flush=True); time.sleep(600)"


def test_a_service_ends_when_whoever_holds_its_input_is_gone():
    words = [sys.executable, "-c", SERVE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        service.stdout.readline()
        service.stdin.write(b"whatever is said")
        service.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            service.wait(0.2)
        service.stdin.close()
        assert service.wait(60) == -signal.SIGTERM


def echo(pipe) -> None:
    child_process.follow_parent()
    pipe.send(True)
    while True:
        pipe.send(pipe.recv())


def test_signals_that_reach_the_whole_group_do_not_end_a_worker():
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=echo, args=(theirs,))
    worker.start()
    theirs.close()
    assert ours.recv()
    for number in (signal.SIGHUP, signal.SIGINT):
        assert worker.pid is not None
        os.kill(worker.pid, number)
        ours.send(number)
        assert ours.recv() == number
    worker.kill()
    worker.join()
