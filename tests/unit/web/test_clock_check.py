"""A clock is confirmed by the parameter service, or by two origins; contradicted by the service alone."""

import json

import httpx
import pytest

from maskedlark.clock import FixedClock
from maskedlark.errors import BadSignature
from maskedlark.randomness import FixedRandomness
from maskedlark.web import clock_check, problem
from maskedlark.web.clock_check import COUNTS_S, TOLERANCE_S
from maskedlark.web.errors import ClockDisagrees
from maskedlark.wire.service_time import ServiceTime
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import SERVICE_KEY
from tests.unit.web.clocks import Asked, check, confirmed, service
from tests.unit.web.service import NOW, away, dripping

DAY_S = 86_400
NONCE = bytes(range(16))


def old(request):
    return httpx.Response(404, json={"detail": "Not Found"})


def recorded(clock):
    """The service's answer to somebody else, whatever is asked."""
    answer = ServiceTime.sign(NONCE, clock.now(), SERVICE_KEY).encode()
    return lambda request: httpx.Response(200, content=answer)


def right(made):
    return made.is_confirmed


class Monotonic:
    def __init__(self, monkeypatch):
        self.seconds = 0.0
        monkeypatch.setattr(clock_check, "time", self)

    def monotonic(self):
        return self.seconds


def test_a_time_verifies_only_with_its_nonce_and_key():
    made = ServiceTime.decode(ServiceTime.sign(NONCE, NOW, SERVICE_KEY).encode())
    assert made.open(NONCE, SERVICE_KEY.verifying) == NOW
    other = SigningKey.generate(FixedRandomness(b"other"))
    for nonce, key, found in (
        (bytes(16), SERVICE_KEY, made),
        (NONCE, other, made),
        (NONCE, SERVICE_KEY, made.model_copy(update={"time": NOW + 1})),
    ):
        with pytest.raises(BadSignature):
            found.open(nonce, key.verifying)


@pytest.mark.parametrize("off", [0, TOLERANCE_S, -TOLERANCE_S])
def test_a_clock_within_minutes_is_confirmed(off):
    clock = FixedClock(NOW + off)
    made = check(clock, Asked(service(FixedClock(NOW))))
    assert not right(made), "not before it compared"
    made.compare()
    assert right(made)
    made.check()


@pytest.mark.parametrize("off", [TOLERANCE_S + 1, -TOLERANCE_S - 1, 29 * DAY_S, -3650 * DAY_S])
def test_a_clock_that_is_wrong_is_named_with_both_times_and_confirmed_once_it_is_right(off, caplog):
    clock = FixedClock(NOW + off)
    made = check(clock, Asked(service(FixedClock(NOW))))
    assert not made.is_due(0)
    assert not right(made)
    with pytest.raises(ClockDisagrees, match=r"the clock says .* UTC, .* service 2030-03-17 17:46 UTC: set"):
        made.check()
    assert problem.STATUS.get(ClockDisagrees, problem.of(ClockDisagrees("x")).status) == 503
    (record,) = caplog.records
    assert "set the wrong one; until then nothing is deleted" in record.message
    clock.seconds = NOW
    made.compare()
    made.check()
    assert right(made)


@pytest.mark.parametrize(
    "answers",
    [
        away,
        old,
        recorded(FixedClock(NOW)),
        service(FixedClock(NOW), SigningKey.generate(FixedRandomness(b"other"))),
        lambda request: httpx.Response(200, content=b"{"),
        lambda request: httpx.Response(200, json={"time": -1, "signature": "00" * 64}),
    ],
    ids=["away", "older", "replayed", "another's", "nonsense", "before 1970"],
)
def test_with_nothing_to_compare_with_it_is_ready_and_not_confirmed(answers, caplog):
    made = check(FixedClock(NOW + 29 * DAY_S), Asked(answers))
    assert not made.is_due(0)
    made.check()
    assert not right(made)
    (record,) = caplog.records
    assert record.message.startswith("nothing confirms the clock (")


def test_two_origins_confirm_and_one_does_not():
    made = check(FixedClock(NOW), Asked(away))
    made.compare()
    for _ in range(3):
        made.fresh_request("ads.example")
        assert not right(made)
    made.fresh_request("other.example")
    assert right(made)


def test_what_confirmed_a_clock_says_nothing_of_it_once_it_was_set(monkeypatch):
    clock, elapsed = FixedClock(NOW), Monotonic(monkeypatch)
    by_service, by_origins = check(clock, Asked(service(FixedClock(NOW)))), check(clock, Asked(away))
    by_service.compare()
    for origin in ("ads.example", "other.example"):
        by_origins.fresh_request(origin)
    assert right(by_service)
    assert right(by_origins)
    clock.seconds += 29 * DAY_S
    assert not right(by_service)
    assert not right(by_origins)
    clock.seconds, elapsed.seconds = NOW + 3000, 3000.0
    assert right(by_service)
    assert right(by_origins)
    clock.seconds, elapsed.seconds = NOW + int(COUNTS_S), COUNTS_S
    assert not right(by_service)
    assert not right(by_origins)


def test_origins_do_not_contradict_the_service_and_it_counts_alone_while_it_answers():
    clock = FixedClock(NOW + 29 * DAY_S)
    asked = Asked(service(FixedClock(NOW)))
    made = check(clock, asked)
    for origin in ("ads.example", "other.example"):
        made.fresh_request(origin)
    made.compare()
    assert not right(made)
    asked.answers = away
    clock.seconds = NOW
    made.compare()
    with pytest.raises(ClockDisagrees):
        made.check()  # Nothing has confirmed it since.
    for origin in ("ads.example", "other.example"):
        made.fresh_request(origin)
    made.compare()
    made.check()


def test_deleting_is_due_by_a_confirmed_clock_and_not_again_at_once(monkeypatch):
    clock, elapsed, asked = FixedClock(NOW), Monotonic(monkeypatch), Asked(away)
    made = check(clock, asked)
    assert not made.is_due(3600)
    asked.answers = service(clock)
    assert made.is_due(3600)
    assert not made.is_due(3600)
    assert made.is_due(0), "when it is told to"
    clock.seconds, elapsed.seconds = NOW + 3600, 3600.0
    assert made.is_due(3600)


def test_an_answer_that_takes_long_is_none():
    made = check(FixedClock(NOW), Asked(dripping))
    made.compare()
    assert not right(made)


def test_the_endpoint_signs_the_time_for_a_nonce():
    answers = service(FixedClock(NOW))
    answer = answers(httpx.Request("GET", f"http://p/v2/time?nonce={NONCE.hex()}"))
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert json.loads(answer.content)["time"] == NOW
    assert ServiceTime.decode(answer.content).open(NONCE, SERVICE_KEY.verifying) == NOW
    for wrong in ("", "?nonce=", "?nonce=00", f"?nonce={NONCE.hex().upper()}"):
        assert answers(httpx.Request("GET", f"http://p/v2/time{wrong}")).status_code == 400


def test_a_machine_that_was_off_is_confirmed_by_its_first_comparison():
    assert confirmed(FixedClock(NOW + 40 * DAY_S)).is_confirmed
