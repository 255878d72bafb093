"""An ad server that is told to stop while browsers send: what it answered is kept, and none is cut off."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from maskedlark.simulate.services import Process
from maskedlark.wire import uploads
from tests.integration.uploading import PATIENCE_S, command, made, parameter_service, stored, uploading
from tests.unit.browser.outbox import MemoryOutbox

BROWSERS = 6


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'reports.db'}"


@pytest.fixture
def start(url, tmp_path):
    def prepared(**serving):
        words = command(url, tmp_path, service)[1:]
        with (tmp_path / "adserver.toml").open("a") as settings:
            settings.write("[serving]\n" + "".join(f"{key} = {value}\n" for key, value in serving.items()))
        return Process(words)

    with parameter_service(tmp_path) as service:
        yield prepared


def test_who_heeds_ready_is_answered_to_the_last_request(start, url):
    """A router asks `/ready`, and sends nothing more when it says no: not one request goes wrong."""
    sent = made(2000)
    draining = threading.Event()
    taken: list[bytes] = []

    def browser(place: int) -> int:
        with httpx.Client(timeout=PATIENCE_S) as client:
            for count, report in enumerate(sent[place::BROWSERS]):
                if draining.is_set():
                    return count
                answer = client.post(
                    f"{server.address}/v2/reports",
                    content=uploads.encode_batch([report]),
                    headers={"content-type": uploads.CONTENT_TYPE},
                )
                assert answer.status_code == 200
                taken.append(report)
        raise AssertionError("it was not told to stop while there was something to send")

    with start(drain_s=2) as server, ThreadPoolExecutor(BROWSERS + 1) as pool:
        sending = [pool.submit(browser, place) for place in range(BROWSERS)]
        while len(taken) < 5 * BROWSERS:
            assert not any(each.done() for each in sending)
            time.sleep(0.05)
        stopping = pool.submit(server.stop)
        while httpx.get(f"{server.address}/ready").status_code == 200:
            time.sleep(0.05)
        draining.set()
        assert sum(each.result(PATIENCE_S) for each in sending) == len(taken)
        assert stopping.result(PATIENCE_S) == 0
    assert sorted(stored(url)) == sorted(taken)


@pytest.mark.long
def test_who_is_cut_off_sends_again_and_nothing_is_lost_or_doubled(start, url):
    """Without a drain: browsers do not know that it stops, nor that it is back."""
    sent = made(300)
    outbox = MemoryOutbox(sent)
    server = start()
    progress, finished = threading.Semaphore(0), threading.Event()

    def acknowledged() -> None:
        progress.release()
        if not outbox.waiting:
            finished.set()

    outbox.on_acknowledge = acknowledged
    with uploading(server.address, outbox):
        server.start()
        for _ in range(4):
            assert progress.acquire(timeout=PATIENCE_S)
        assert server.stop() == 0
        assert set(outbox.acknowledged.values()) <= set(stored(url))
        with server:
            assert finished.wait(PATIENCE_S)
    assert not outbox.refusals
    assert sorted(stored(url)) == sorted(sent)
