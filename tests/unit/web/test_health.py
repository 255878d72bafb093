import httpx
import pytest
from fastapi import FastAPI

from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import error_responses, health
from maskedlark.web.errors import CorruptCache
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
    app.include_router(health.router(check))
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


def test_a_mistake_of_ours_is_a_mistake_here_too(http, wrong):
    wrong.append(RuntimeError("no"))
    assert http.get("/ready").status_code == 500
