"""Who is asked first. With real releases of helpers in this process, near the end of a budget."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.adserver.errors import HelperAway
from maskedlark.adserver.remote_helper import Retries
from maskedlark.clock import FixedClock
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.errors import BadReceipt, BudgetExhausted, NoSuchSession, SlotTaken
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt, ReleaseReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import Request
from maskedlark.web.errors import ServiceAway
from maskedlark.workflow import Workflow
from tests.unit.training.cases import HIGH, document, home, model, run

CLIENTS = 16
AFFORDED = 5
"""Queries of ε = 1 that the budget allows, give or take the noise by which they are told apart."""
SETTINGS = f"""
k = 1
keys = ["city"]
budget = {{epsilon = {AFFORDED + 0.5}, delta = 0.0}}
values = {{visit = [0, 1]}}
mechanisms.sums = {{kind = "laplace", noise_floor = 0.5}}
"""


@pytest.fixture(params=[2, 3])
def way(request) -> Iterator[Workflow]:
    with Workflow.declared(SETTINGS, request.param, FixedClock(1_900_000_000), SystemRandomness()) as way:
        way.make_aggregate_dataset("table", [["Rome"] * 20], [[1] * 20], decoded=True)
        yield way


def charged(way: Workflow) -> list[set[str]]:
    """The requests that each helper has charged."""
    chains = [[each.claimed() for each in helper.receipts("ads.example", 0, 99)] for helper in way.helpers]
    return [{each.request for each in chain if isinstance(each, ReleaseReceipt)} for chain in chains]


def ask(way: Workflow, noise: float) -> str:
    """The request's id, or the error's name."""
    try:
        return way.query(["visit"], noise=noise).request
    except MaskedLarkError as error:
        return type(error).__name__


def test_clients_at_the_end_of_a_budget_are_charged_everywhere_or_nowhere(way, monkeypatch):
    delays = random.Random(1)
    for helper in way.helpers:

        def release(body, real=helper.release):
            time.sleep(delays.uniform(0, 0.05))  # What a network does to the order of arrival.
            return real(body)

        monkeypatch.setattr(helper, "release", release)
    with ThreadPoolExecutor(CLIENTS) as pool:
        said = list(pool.map(lambda place: ask(way, 1 + place / 1000), range(CLIENTS)))
    answered = {each for each in said if each != "BudgetExhausted"}
    assert len(answered) == AFFORDED
    assert charged(way) == [answered] * len(way.helpers)
    assert way.pending() == []


def test_two_that_reach_helpers_in_opposite_orders_do_not_spoil_each_other(way, monkeypatch):
    """One of two fits. Asked at once, each is charged by one helper, and neither is answered."""
    for place in range(AFFORDED - 1):
        ask(way, 1 + place / 1000)
    one, two = 1.1, 1.2
    moved = {(each, noise): threading.Event() for each in way.helpers for noise in (one, two)}
    first, other = way.helpers[:2]
    waits = {(first, two): (first, one), (other, one): (other, two)}
    for helper in way.helpers:

        def release(body, helper=helper, real=helper.release):
            noise = Request.decode(body).noise
            if (helper, noise) in waits:
                assert moved[waits[helper, noise]].wait(60)
            try:
                return real(body)
            finally:
                moved[helper, noise].set()

        monkeypatch.setattr(helper, "release", release)

    def client(noise):
        try:
            return ask(way, noise)
        finally:
            for helper in way.helpers:  # It comes no more.
                moved[helper, noise].set()

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(client, (one, two)))
    assert said[1] == "BudgetExhausted"
    assert all(said[0] in each and len(each) == AFFORDED for each in charged(way))
    assert way.pending() == []


def test_the_first_is_asked_alone_and_its_answer_is_durable_before_the_others_are(way, monkeypatch):
    order, kept = list[str](), list[set[str]]()
    for helper in way.helpers:

        def release(body, helper=helper, real=helper.release):
            order.append(helper.name)
            kept.append(set(way._requests.answers(Request.decode(body).id)))
            return real(body)

        monkeypatch.setattr(helper, "release", release)
    ask(way, 1.0)
    first, *others = [helper.name for helper in way.helpers]
    assert order[0] == first
    assert sorted(order[1:]) == others
    assert kept[0] == set()
    assert all(first in each for each in kept[1:])


# Sessions: opened at the first helper first, closed there last.

COSTLY = {"sampling": "whole", "noise": 2.0, "steps": 4}


@pytest.fixture
def trained() -> Iterator[Workflow]:
    """Two helpers, and a budget for one session and a half."""
    ceiling = {"epsilon": 1.5 * run(home(document()), model(), **COSTLY).plan().epsilon, "delta": 1e-3}
    with home(document(training={"adserver": ceiling, "coalition": HIGH})) as way:
        yield way


def sessions(way: Workflow, kind: type = OpenedReceipt) -> list[int]:
    chains = [[each.claimed() for each in helper.receipts("ads.example", 0, 99)] for helper in way.helpers]
    return [sum(isinstance(each, kind) for each in chain) for chain in chains]


def test_a_refund_lets_the_first_admit_nothing_that_another_still_refuses(trained, monkeypatch):
    one, two = (run(trained, model(), **COSTLY) for _ in range(2))
    one.sums.open()
    first, other = trained.helpers
    closed, refusals = threading.Event(), list[MaskedLarkError]()
    close_first, close_other = first.close_session, other.close_session

    def at_first(session):
        try:
            return close_first(session)
        finally:
            closed.set()

    def at_other(session):
        closed.wait(0.5)  # Asked at once, the first has refunded by now.
        two.sums = two.renewed()[1]  # Its slots are free, and it waits for budget alone.
        try:
            two.sums.open()
        except BudgetExhausted as error:
            refusals.append(error)
        return close_other(session)

    monkeypatch.setattr(first, "close_session", at_first)
    monkeypatch.setattr(other, "close_session", at_other)
    one.close()
    assert len(refusals) == 1
    assert sessions(trained) == [1, 1], "the refusal was the first helper's"
    two.sums = two.renewed()[1]
    two.sums.open()
    assert sessions(trained) == [2, 2]


def test_a_helper_that_does_not_close_keeps_the_first_from_refunding(trained, monkeypatch):
    training = run(trained, model(), **COSTLY)
    training.sums.open()

    def away(session):
        raise HelperAway("helper-1 stays away")

    with monkeypatch.context() as patch:
        patch.setattr(trained.helpers[1], "close_session", away)
        with pytest.raises(HelperAway):
            training.close()
    assert sessions(trained, ClosedReceipt) == [0, 0]
    assert list(training.close()) == ["helper-0", "helper-1"]
    assert sessions(trained, ClosedReceipt) == [1, 1]


def test_a_session_that_only_the_first_has_opened_is_refunded_there(trained, monkeypatch):
    training = run(trained, model(), **COSTLY)

    def away(body):
        raise HelperAway("helper-1 stays away")

    monkeypatch.setattr(trained.helpers[1], "open_session", away)
    with pytest.raises(HelperAway):
        training.sums.open()
    with pytest.raises(NoSuchSession):
        training.close()
    assert sessions(trained, ClosedReceipt) == [1, 0]


def test_no_session_is_opened_elsewhere_before_the_receipt_of_the_first_holds(trained, monkeypatch):
    one, two = (run(trained, model(), **COSTLY) for _ in range(2))
    one.sums.open()
    other = trained.helpers[0].open_session(one.sums.body)
    monkeypatch.setattr(trained.helpers[0], "open_session", lambda body: other)
    with pytest.raises(BadReceipt, match="helper-0 gave a receipt of another session than was asked for"):
        two.sums.open()
    assert sessions(trained) == [1, 1]


@pytest.fixture
def three() -> Iterator[Workflow]:
    with home(document(helpers=3)) as way:
        yield way


def refusing(error: MaskedLarkError):
    def refuse(_):
        raise error

    return refuse


def test_the_first_refunds_nothing_while_any_other_may_count_the_session(three, monkeypatch):
    """One has never opened it, and another is away: that one still counts it whole."""
    training = run(three, model(), **COSTLY)
    with monkeypatch.context() as patch:
        patch.setattr(three.helpers[1], "open_session", refusing(HelperAway("helper-1 stays away")))
        with pytest.raises(HelperAway):
            training.sums.open()
    assert sessions(three) == [1, 0, 1]
    with monkeypatch.context() as patch:
        patch.setattr(three.helpers[2], "close_session", refusing(HelperAway("helper-2 stays away")))
        with pytest.raises(HelperAway):
            training.close()
    assert sessions(three, ClosedReceipt) == [0, 0, 0]
    with pytest.raises(NoSuchSession):
        training.close()
    assert sessions(three, ClosedReceipt) == [1, 0, 1]


def test_slots_that_are_taken_at_another_helper_leave_nothing_charged(three, monkeypatch):
    training, real = run(three, model(), **COSTLY), three.helpers[1].open_session
    taken = training.sums.body

    def open_session(body):
        if body == taken:
            raise SlotTaken(40)
        return real(body)

    monkeypatch.setattr(three.helpers[1], "open_session", open_session)
    training._opened()
    assert training.sums.body != taken
    assert sessions(three) == [2, 1, 2]
    assert sessions(three, ClosedReceipt) == [1, 0, 1], "the one whose slots were taken, and no other"


def test_slots_that_are_taken_open_no_other_session_while_this_one_is_charged(three, monkeypatch):
    training = run(three, model(), **COSTLY)
    monkeypatch.setattr(three.helpers[1], "open_session", refusing(SlotTaken(40)))
    monkeypatch.setattr(three.helpers[2], "close_session", refusing(HelperAway("helper-2 stays away")))
    with pytest.raises(HelperAway, match=r"helper-2 stays away\. helper-0 has charged session .*close\(\)"):
        training._opened()
    assert sessions(three) == [1, 0, 1]


def test_a_refusal_of_another_helper_says_what_the_first_has_charged(three, monkeypatch):
    training = run(three, model(), **COSTLY)
    monkeypatch.setattr(three.helpers[2], "open_session", refusing(BudgetExhausted(1.0, 2.0, None)))
    with pytest.raises(BudgetExhausted, match=r"helper-0 has charged session .*close\(\)"):
        training._opened()
    with pytest.raises(NoSuchSession):
        training.close()
    assert sessions(three, ClosedReceipt) == [1, 1, 0]


@pytest.mark.parametrize(
    ("address", "here"), [("http://127.0.0.1:15001", True), ("https://helper.example", False)]
)
def test_a_helper_of_a_simulation_that_has_ended_is_said_to_be_one(address, here):
    def ask():
        raise ServiceAway(f"{address}/v2/x cannot be reached (ConnectError); try again")

    with pytest.raises(HelperAway) as caught:
        Retries(2, sleep=lambda _: None)("helper-0", ask)
    assert ("if `maskedlark simulate` had started it, start that again" in str(caught.value)) is here
