import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import error_responses, health
from maskedlark.web.errors import CorruptCache, NotReady
from tests.unit.web.service import AppTransport


@pytest.fixture
def wrong():
    return []


@pytest.fixture
def http(wrong):
    def check():
        for error in wrong:
            raise error

    app = FastAPI()
    error_responses.install(app)
    app.state.metrics = CollectorRegistry()
    health.install(app, check)
    with httpx.Client(transport=AppTransport(app), base_url="http://app.test") as made:
        yield made


def app_of(http):
    return http._transport.app


def test_a_service_that_can_work_is_alive_and_ready(http):
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ready"}


def test_one_that_is_about_to_stop_is_alive_and_not_ready(http):
    app_of(http).state.draining = True
    assert http.get("/health").json() == {"status": "ok"}
    answer = http.get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/draining")
    assert "retry-after" in answer.headers


def test_what_is_away_is_named(http, wrong):
    wrong.append(StorageUnavailable("the database cannot answer; try again later"))
    assert http.get("/health").status_code == 200
    answer = http.get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable")


@pytest.mark.parametrize("error", [CorruptCache("/secret/path is damaged"), OSError("/secret/path")])
def test_what_only_the_operator_should_read_is_in_the_log(http, wrong, error, caplog):
    wrong.append(error)
    answer = http.get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/not-ready")
    assert "secret" not in answer.text
    assert "/secret/path" in caplog.text


def test_a_mistake_of_ours_is_a_mistake_here_too_and_nobody_checked_its_message(http, wrong, caplog):
    wrong.append(RuntimeError("secret"))
    assert http.get("/ready").status_code == 500
    assert "secret" not in caplog.text


def test_it_looks_at_most_every_few_seconds_however_often_it_is_asked():
    now, looks = [100.0], []
    readiness = health.Readiness(lambda: looks.append(now[0]), lambda: now[0])
    for _ in range(1000):
        readiness.check()
    assert looks == [100.0]
    now[0] += health.EVERY_S
    readiness.check()
    assert looks == [100.0, 100.0 + health.EVERY_S]


def test_while_one_thread_looks_others_get_what_was_found_before():
    now, looking, leave = [0.0], threading.Event(), threading.Event()
    readiness = health.Readiness(lambda: None, lambda: now[0])
    readiness.check()

    def slow():
        looking.set()
        assert leave.wait(60)
        raise StorageUnavailable("away")

    readiness.checks.append(slow)
    now[0] += health.EVERY_S
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(readiness.check)
        assert looking.wait(60)
        readiness.check()
        leave.set()
        assert isinstance(first.exception(60), StorageUnavailable)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="away"):
            readiness.check()


def test_a_service_is_not_ready_before_its_first_look_has_ended():
    readiness = health.Readiness(lambda: None)
    readiness.checks.insert(0, lambda: caught(NotReady, readiness))
    readiness.check()


def caught(error, readiness):
    """In a thread of its own, as another request is."""
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(readiness.check).exception(60), error)
