import json
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.adserver.remote_helper import Retries
from maskedlark.cli import app, budget
from maskedlark.errors import BadSignature, Expired
from maskedlark.ledger.budget import SESSIONS
from maskedlark.ledger.errors import BadReceipt
from maskedlark.parameters.policy import against_coalition
from maskedlark.web.errors import ServiceAway
from tests.unit.training.cases import TAG, document, home, model, run

INVOKE = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke


@pytest.fixture
def helpers(monkeypatch):
    made = home(document())
    monkeypatch.setattr(Client, "from_config", lambda path: nullcontext(made))
    return made


def shown(*options):
    done = INVOKE(app, ["budget", "--config", "adserver.toml", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def opened(helpers, **options):
    training = run(helpers, model(), batches=2, noise=20.0, **options)
    training.receipts = training.sums.open()
    return training


def test_nothing_spent_leaves_everything_and_says_of_what(helpers):
    (found,) = json.loads(shown("--json"))["documents"]
    assert [each["left"] for each in found["limits"]] == [each["epsilon"] for each in found["limits"]]
    assert [each["of"] for each in found["limits"]] == [
        "a source's budget",
        "a source's budget, against the ad server with all helpers but one",
        "what training may cost against the ad server",
        "what training may cost against the ad server with all helpers but one",
    ]
    assert found["entries"] == []
    assert "what training may cost against the ad server" in " ".join(shown().split())
    assert "a source's budget, against the ad server" in " ".join(shown().split())


def test_what_spent_it_and_what_a_refund_gave_back(helpers):
    first, second = opened(helpers), opened(helpers, delta=None)
    second.close()
    (found,) = json.loads(shown("--json"))["documents"]
    sessions = [each for each in found["entries"] if each["what"] == "gradient"]
    assert [each["steps"] for each in sessions] == [6, 6]
    assert sessions[0]["epsilon"] == pytest.approx(first.plan().epsilon)
    assert sessions[0]["coalition_epsilon"] == pytest.approx(first.plan().coalition_epsilon)
    assert (sessions[0]["datasets"], sessions[0]["model"]) == (["visits"], TAG)
    *_, refund = found["entries"]
    assert refund["what"] == "refund"
    assert refund["epsilon"] == pytest.approx(-sessions[1]["epsilon"])
    assert refund["session_delta"] == -sessions[1]["session_delta"] < 0
    stream = next(each for each in found["streams"] if each["model"] == TAG)
    assert stream["spent_epsilon"] == pytest.approx(first.plan().epsilon)
    assert stream["delta_of_sessions_left"] == pytest.approx(stream["delta_of_sessions"] - 1e-5)
    # Every helper's own balance says the same.
    balance = next(iter(first.receipts.values())).balance
    limits = {each["of"]: each for each in found["limits"]}
    assert limits["a source's budget"]["left"] == pytest.approx(balance.left_epsilon)
    # All that a source may cost a coalition, which no ceiling says by itself.
    together = limits["a source's budget, against the ad server with all helpers but one"]
    assert together["spent"] == pytest.approx(first.plan().coalition_epsilon)
    assert together["epsilon"] == against_coalition(helpers.document).epsilon
    printed = str(helpers.budget()).splitlines()
    assert [line.partition(" is left ")[2] for line in printed[:4]] == [f"of {name}" for name in limits]
    assert printed[-1] == "spent by: gradient of visits, gradient of visits, refund of visits"
    text = shown()
    assert "gradient of visits, 6 steps, over visits" in text
    assert "refund of visits" in text


def test_a_helper_that_charged_more_is_the_one_that_counts(helpers):
    training = run(helpers, model(), batches=2, noise=20.0)
    session = training.sums
    session._open(session.helpers[0])
    (found,) = json.loads(shown("--json"))["documents"]
    assert (found["helpers_differ"], found["least_is_left_at"]) == (True, session.helpers[0].name)
    assert "Helpers have charged different requests" in shown()


def test_the_line_after_a_command_says_of_what_each_figure_is(helpers):
    training = opened(helpers, delta=None)
    line, figures = budget.left(helpers, helpers.document)
    said = [f"{each['left']:.4g} of {each['epsilon']:g}" for each in figures["limits"]]
    both = "ε = {} against the ad server alone, {} against it with all helpers but one"
    assert line.startswith(
        f"left of a source's budget: {both.format(*said[:2])}; of what training may cost: "
        f"{both.format(*said[2:])}; δ for sessions of visits: "
    )
    charge = training.plan().session_charge
    assert charge is not None
    assert figures["delta_of_sessions"][TAG] == pytest.approx((SESSIONS - 1) * charge.delta)


def test_of_a_helper_that_is_lost_the_stored_receipts_count(helpers, monkeypatch):
    first = opened(helpers)
    shown()
    opened(helpers, delta=None)
    lost = ServiceAway("connection refused")
    monkeypatch.setattr(helpers.helpers[1], "receipts", lambda *_: Retries(1)("helper-1", raising(lost)))
    (found,) = json.loads(shown("--json"))["documents"]
    assert list(found["helpers_missing"]) == ["helper-1"]
    assert (found["least_is_left_at"], len(found["entries"])) == ("helper-0", 2)
    assert not found["helpers_differ"], "what a missing helper has charged since is not known"
    text = " ".join(shown().split())
    assert "helper-1 cannot be asked, and may have charged more than its receipts stored here:" in text
    assert "connection refused" in text
    # Both may be away: then all is as it was stored.
    monkeypatch.setattr(helpers.helpers[0], "receipts", raising(Expired("every key that helper-0 has")))
    (found,) = json.loads(shown("--json"))["documents"]
    assert list(found["helpers_missing"]) == ["helper-0", "helper-1"]
    assert found["limits"][0]["spent"] > first.plan().epsilon
    # A new helper has the name of the lost one, and its own identity.
    monkeypatch.setattr(helpers.helpers[0], "receipts", raising(BadSignature("it does not verify")))
    (found,) = json.loads(shown("--json"))["documents"]
    assert found["helpers_missing"]["helper-0"] == "it does not verify"


def test_a_helper_that_shows_two_histories_is_no_missing_one(helpers, monkeypatch):
    monkeypatch.setattr(helpers.helpers[1], "receipts", raising(BadReceipt("it shows two histories")))
    done = INVOKE(app, ["budget", "--config", "adserver.toml"])
    assert done.exit_code
    assert "two histories" in done.output


def raising(error):
    def refuse(*_):
        raise error

    return refuse
