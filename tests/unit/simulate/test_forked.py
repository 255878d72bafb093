"""Services that are forked: processes like any other, which share code and nothing that is drawn."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from maskedlark.simulate.forked import ForkServer
from maskedlark.web.errors import ServiceAway
from tests.unit.simulate import forked_program

MODULE = forked_program.__name__
PATIENCE_S = 60


@pytest.fixture(scope="module")
def server():
    with ForkServer() as server:
        yield server


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_draw_is_made_twice(server):
    """Not by two services, nor by one and whoever forked it: each source of randomness starts anew."""
    draws = [[*map(str, forked_program.DRAWS)]]
    for _ in range(3):
        with server.fork(["-m", MODULE, "exit", "0"]) as forked:
            draws.append(forked.stdout.readline().split())
            assert forked.wait(PATIENCE_S) == 0
    assert all(len(each) == len(draws[0]) for each in draws)
    for same in zip(*draws, strict=True):
        assert len(set(same)) == len(draws)


def test_it_is_what_python_m_would_run(server):
    with server.fork(["-m", MODULE, "exit", "3", "a b"]) as forked:
        forked.stdout.readline()
        assert forked.stdout.readline() == f"exit 3 a b True {MODULE}\n"
        assert forked.wait(PATIENCE_S) == 3
        assert forked.poll() == 3
        assert forked.stdout.readline() == ""
        forked.kill()  # It has ended: nobody else who has its id by now is told.


def test_it_ends_when_its_input_does(server):
    with server.fork(["-m", MODULE, "read"]) as forked:
        forked.stdout.readline()
        assert forked.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            forked.wait(0.01)
        pid = forked.pid
    # The connection is closed: it reads its end, and the fork server lets go of it.
    end = time.monotonic() + PATIENCE_S
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(("end", "code"), [("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)])
def test_it_is_told_to_stop(server, end, code):
    with server.fork(["-m", MODULE, "read"]) as forked:
        forked.stdout.readline()
        getattr(forked, end)()
        assert forked.wait(PATIENCE_S) == code


def test_ctrl_c_loses_nothing_that_was_told(server):
    """At any moment: whoever pressed it as a simulation had just begun waited for a process id forever."""
    moments, interruptible = itertools.cycle(range(3, 40)), False

    def interrupt(*_):
        if interruptible:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(30):
            with server.fork(["-m", MODULE, "exit", "7"]) as forked:
                forked.stdout.read()
                while forked.returncode is None:
                    signal.setitimer(signal.ITIMER_REAL, next(moments) * 1e-6)
                    try:
                        interruptible = True
                        forked.poll()
                        interruptible = False
                    except KeyboardInterrupt:
                        interruptible = False
                assert forked.pid > 0
                assert forked.wait(0) == 7
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_service_outlives_the_fork_server_and_can_be_stopped():
    with ForkServer() as server, server.fork(["-m", MODULE, "read"]) as forked:
        forked.stdout.readline()
        server._process.kill()
        server._process.wait()
        assert forked.poll() is None
        with pytest.raises(ServiceAway, match="start again"):
            server.fork(["-m", MODULE, "exit", "0"])
        forked.kill()
        assert forked.wait(PATIENCE_S) == -signal.SIGKILL


def test_services_and_what_they_were_forked_from_end_with_a_killed_owner():
    """One that has not read all that it was told: the connection fails then, instead of ending."""
    program = f"""
        import os, signal
        from maskedlark.simulate.forked import ForkServer
        server = ForkServer()
        forked = server.fork(["-m", "{MODULE}", "read"])
        forked.stdout.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    # Standard error ends when everybody who has it does: the fork server, and the service.
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
