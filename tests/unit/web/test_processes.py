"""Several processes on one port: started, shared, killed, started again, and stopped."""

import contextlib
import os
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from maskedlark.web.errors import BadConfig
from maskedlark.web.processes import refuse_file
from maskedlark.web.serving import Serving
from tests.unit.web import pem
from tests.unit.web.served import HOST, request, rest, served, whole

PROCESSES = 3
PATIENCE_S = 60


def pid(made):
    """Who answers next; None if it is killed meanwhile."""
    with contextlib.suppress(ConnectionError):
        answer = made.ask("/pid")
        if answer.startswith(b"HTTP/1.1 200 "):
            return int(answer.rpartition(b"\r\n\r\n")[2])
    return None


def all_pids(made, *without):
    """The processes that answer, once there are as many as there should be."""
    seen: set[int | None] = set()
    end = time.monotonic() + PATIENCE_S
    while len(seen) < PROCESSES:
        assert time.monotonic() < end, seen
        seen |= {pid(made)} - {None, *without}
    return seen


def is_gone(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(is_so):
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def several():
    with served({"processes": PROCESSES, "metrics_port": 0, "stop_within_s": 30}) as made:
        yield made


def test_all_answer_on_one_port_and_each_shows_its_metrics(several):
    metrics = [several.lines() for _ in range(PROCESSES)]
    assert all(each.startswith("metrics on http://127.0.0.1:") for each in metrics)
    for each in metrics:
        with socket.create_connection((HOST, int(each.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(request("/metrics"))
            assert b"served_total 0.0" in rest(connection)
    assert several.process.pid not in all_pids(several)


def test_a_process_that_is_killed_is_started_again_and_the_others_answer_meanwhile(several):
    before = all_pids(several)
    for victim in before:
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda victim=victim: is_gone(victim))
        # None that is asked from now on meets the dead one: nobody else's connection is lost.
        assert several.ask("/health").startswith(b"HTTP/1.1 200 ")
    assert not all_pids(several, *before) & before


def test_each_process_reads_the_settings_when_it_starts_as_the_parent_read_them_long_ago(several):
    assert several.ask("/reloads").endswith(b"\r\n\r\n1")


def test_told_to_stop_all_answer_what_is_under_way_and_that_is_no_failure():
    with served({"processes": PROCESSES, "stop_within_s": 30}) as made:
        pids = all_pids(made)
        with contextlib.ExitStack() as stack:
            asked = [stack.enter_context(made.connect()) for _ in range(4 * PROCESSES)]
            for each in asked:
                each.sendall(request("/length", "content-length: 9\r\n", "POST") + b"123")
            assert made.ask("/health").startswith(b"HTTP/1.1 200 ")
            made.signal()
            for each in asked:
                each.sendall(b"456789")
            assert all(rest(each).endswith(b"\r\n\r\n9") for each in asked)
        assert made.end() == (0, "")
    assert all(map(is_gone, pids))
    with pytest.raises(ConnectionError):
        made.ask("/health")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_children_end_with_their_parent_however_it_ends(number):
    with served({"processes": PROCESSES, "stop_within_s": 3000}) as made, made.connect() as held:
        pids = all_pids(made)
        held.sendall(request("/held"))
        made.signal(number)
        if number == signal.SIGINT:
            # It is held: told again, nobody waits for that.
            wait_until(lambda: sum(map(is_gone, pids)) == PROCESSES - 1)
            made.signal(number)
        made.process.wait(PATIENCE_S)
        assert made.process.returncode == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: all(map(is_gone, pids)))


@pytest.mark.long
def test_children_that_are_still_starting_when_their_parent_is_killed_do_not_stop_the_next_start():
    with served({"processes": PROCESSES}) as made:
        settings = {"processes": PROCESSES, "port": made.port}
        before = {*children(made.process.pid)}
        os.kill(min(all_pids(made)), signal.SIGKILL)
        wait_until(lambda: {*children(made.process.pid)} - before)
        (starting,) = {*children(made.process.pid)} - before
        # It holds the port, and has imported nothing yet; on a busy machine that takes seconds.
        os.kill(starting, signal.SIGSTOP)
        made.signal(signal.SIGKILL)
        made.process.wait(PATIENCE_S)
        later = threading.Timer(3.0, os.kill, (starting, signal.SIGCONT))
        later.start()
        try:
            with served(settings) as next_one:
                assert next_one.port == settings["port"]
                assert next_one.ask("/health").startswith(b"HTTP/1.1 200 ")
        finally:
            later.join()  # It holds the output of the first, too.


def children(number):
    """The ids of a process's children."""
    return map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split())


def test_what_one_cannot_begin_with_ends_all_and_is_said_once():
    with served({}) as other:
        # The last of its three metrics ports is taken.
        with served({"processes": PROCESSES, "metrics_port": other.port - PROCESSES + 1}) as made:
            code, said = made.end()
        assert made.announced == ""
    assert code == 1
    assert said.count("CannotListen") == 1


def test_a_file_is_no_database_for_several():
    refuse_file(Serving(), "sqlite:///reports.sqlite")
    refuse_file(Serving(processes=2), "postgresql://host/reports")
    with pytest.raises(BadConfig, match="processes = 2 needs a database server"):
        refuse_file(Serving(processes=2), "sqlite:///reports.sqlite")


def test_a_hangup_is_passed_on_and_ends_nobody(tmp_path):
    pair, other = pem.make(tmp_path), pem.make(tmp_path, "other")
    settings = {
        "certificate": str(pair.certificate),
        "certificate_key": str(pair.key),
        "processes": PROCESSES,
    }
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE

    def seen(made):
        """Of each process, the certificate that it has shown."""
        found: dict[bytes, bytes | None] = {}
        while len(found) < PROCESSES:
            with made.connect(careless) as connection:
                connection.sendall(request("/pid"))
                found[whole(connection).rpartition(b"\r\n\r\n")[2]] = connection.getpeercert(binary_form=True)
        return found

    with served(settings) as made:
        before = seen(made)
        for now, then in zip(pair, other, strict=True):
            now.write_bytes(then.read_bytes())
        made.signal(signal.SIGHUP)
        renewed = ssl.PEM_cert_to_DER_cert(other.certificate.read_text())
        wait_until(lambda: set(seen(made).values()) == {renewed})
        assert seen(made).keys() == before.keys()
