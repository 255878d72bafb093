import httpx
import pytest
from fastapi import FastAPI

from maskedlark.audit.prototype import NotMersenne
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.errors import LedgerBehind
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import error_responses, problem
from tests.unit.web.service import AppTransport

SECRET = "planted-9e70"


def ask(error):
    app = FastAPI()
    error_responses.install(app)

    @app.get("/")
    def fail(number: int = 0) -> None:
        raise error

    with httpx.Client(transport=AppTransport(app), base_url="http://app.test") as http:
        return http.get("/")


def test_an_app_does_not_drain_from_the_start():
    app = FastAPI()
    error_responses.install(app)
    assert app.state.draining is False


def test_what_passes_says_when_to_come_again(caplog):
    answer = ask(StorageUnavailable("the database cannot answer; try again later"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, str(error_responses.RETRY_AFTER_S))
    assert caplog.text == ""


@pytest.mark.parametrize("error", [ValueError(SECRET), NotMersenne(SECRET), MaskedLarkError(SECRET)])
def test_what_nobody_expected_says_where_and_not_what(error, caplog):
    answer = ask(error)
    assert (answer.status_code, answer.json()["type"]) == (500, "about:blank")
    (message,) = caplog.messages
    assert message.startswith(f"an unexpected {type(error).__name__} at ")
    assert f"{__name__}:" in message
    assert SECRET not in answer.text + caplog.text


def test_what_the_operator_has_to_mend_is_logged_in_our_words(monkeypatch, caplog):
    monkeypatch.setitem(problem.STATUS, LedgerBehind, 500)
    answer = ask(LedgerBehind("put the newest ledger back"))
    assert answer.json()["type"] == "/problems/ledger-behind"
    assert "LedgerBehind: put the newest ledger back" in caplog.text
