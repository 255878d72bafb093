"""Uploads to a real ad server process on loopback, which is killed, stopped and talked to badly."""

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from maskedlark.browser.upload import Progress
from maskedlark.simulate.services import free_port
from maskedlark.wire.uploads import CONTENT_TYPE, encode_batch
from tests.integration.uploading import (
    PATIENCE_S,
    command,
    made,
    parameter_service,
    process,
    stored,
    uploader,
    uploading,
    when_empty,
)
from tests.unit.browser.outbox import MemoryOutbox


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("httpx").setLevel(logging.WARNING)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'reports.db'}"


@pytest.fixture
def ad_server(url, tmp_path):
    """Starts one, as often as a test likes."""
    with parameter_service(tmp_path) as service:
        yield lambda: process(command(url, tmp_path, service))


def test_a_killed_ad_server_loses_nothing_that_it_acknowledged_and_doubles_nothing(ad_server, url):
    sent = made(400)
    outbox = MemoryOutbox(sent)
    for _ in range(6):
        progress = threading.Semaphore(0)
        outbox.on_acknowledge = progress.release
        with ad_server() as (address, process), uploading(address, outbox):
            # A few batches come through, and the next ones are under way when it is killed.
            for _ in range(5):
                assert progress.acquire(timeout=PATIENCE_S)
            process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        found = stored(url)
        assert len(found) == len(set(found))
        assert set(outbox.acknowledged.values()) <= set(found) <= set(sent)
        assert len(outbox.acknowledged) < len(sent)
    with ad_server() as (address, process), httpx.Client() as client:
        assert uploader(address, client, outbox).send_due().refused == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not outbox.waiting
    assert sorted(stored(url)) == sorted(sent)


def test_a_second_ad_server_over_the_same_file_is_refused(ad_server, url, tmp_path):
    with ad_server() as (address, first), httpx.Client() as client:
        words = command(url, tmp_path)
        second = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert second.returncode == 1
        assert f"another process, {first.pid}, runs on {tmp_path}" in second.stderr
        assert uploader(address, client, MemoryOutbox(made(5))).send_due() == Progress(5, 0)
        first.kill()
        first.wait()
    # Killed or stopped, it leaves nothing in the way of the next.
    with ad_server():
        pass


def test_browsers_that_send_the_same_reports_at_once_are_counted_once(ad_server, url):
    sent = made(60)
    several = [MemoryOutbox(sent) for _ in range(4)]
    with ad_server() as (address, _), contextlib.ExitStack() as stack:
        done = [when_empty(outbox) for outbox in several]
        for outbox in several:
            stack.enter_context(uploading(address, outbox))
        assert all(each.wait(PATIENCE_S) for each in done)
    assert sorted(stored(url)) == sorted(sent)


def test_an_ad_server_starts_without_the_parameter_service_and_loses_nothing(url, tmp_path):
    sent = made(40)
    outbox = MemoryOutbox(sent)
    finished, port = when_empty(outbox), free_port()
    words = command(url, tmp_path, f"http://127.0.0.1:{port}")
    with process(words) as (address, _), httpx.Client() as client:
        answer = client.post(
            f"{address}/v2/reports", content=encode_batch(sent), headers={"content-type": CONTENT_TYPE}
        )
        assert answer.json() == {"answers": [{"outcome": "later"}] * 40}
        assert client.get(f"{address}/ready").status_code == 200
        with parameter_service(tmp_path, port), uploading(address, outbox):
            assert finished.wait(PATIENCE_S)
        assert not outbox.refusals
    # It is away again. An ad server that starts now has seen the document before.
    with process(words) as (address, _), httpx.Client() as client:
        more = made(10, b"more")
        assert uploader(address, client, MemoryOutbox(more)).send_due() == Progress(10, 0)
    assert sorted(stored(url)) == sorted(sent + more)


def request_head(length: int) -> bytes:
    head = f"POST /v2/reports HTTP/1.1\r\nHost: ads.example\r\nContent-Type: {CONTENT_TYPE}\r\n"
    return (head + f"Content-Length: {length}\r\n\r\n").encode()


def test_an_upload_that_has_begun_is_finished_when_the_server_is_told_to_stop(ad_server, url):
    body = encode_batch(made(10))
    with ad_server() as (address, process):
        parsed = httpx.URL(address)
        with socket.create_connection((parsed.host, parsed.port or 0), timeout=PATIENCE_S) as link:
            link.sendall(request_head(len(body)) + body[:100])
            # It answers others meanwhile, so it has taken our connection up before the signal comes.
            assert httpx.get(f"{address}/health").json() == {"status": "ok"}
            process.send_signal(signal.SIGTERM)
            link.sendall(body[100:])
            answer = b"".join(iter(lambda: link.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b'"stored"') == 10
        assert process.wait(PATIENCE_S) == 0
    assert len(stored(url)) == 10


def test_a_body_over_the_limit_is_refused_while_it_comes(ad_server, url):
    with ad_server() as (address, _):
        for length in (None, 5 << 20):
            headers = {"content-type": CONTENT_TYPE}
            chunks = (bytes(1 << 16) for _ in range(80))
            content = b"\x01" + b"".join(chunks) if length else chunks
            with contextlib.suppress(httpx.WriteError, httpx.ReadError):  # it may have hung up on us already
                assert (
                    httpx.post(f"{address}/v2/reports", content=content, headers=headers).status_code == 413
                )
        with httpx.Client() as client:
            assert uploader(address, client, MemoryOutbox(made(3))).send_due() == Progress(3, 0)
    assert len(stored(url)) == 3


@pytest.mark.parametrize("database", ["mysql://somewhere/reports", "sqlite:////nowhere/at/all/reports.db"])
def test_a_database_that_cannot_be_used_is_named_without_a_traceback(database, tmp_path):
    ended = subprocess.run(
        command(database, tmp_path), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 1
    # What the driver says, for the log alone, and what is wrong.
    *logged, said = ended.stderr.splitlines()
    assert len(logged) <= 1
    assert all(json.loads(line)["service"] == "adserver" for line in logged)
    assert said.startswith("UnsupportedDatabase: ")


def test_an_ad_server_starts_without_torch():
    code = "import sys, maskedlark.cli.adserver; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0
    )
