"""Who is asked first. With real releases of helpers in this process, near the end of a budget."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.release.messages import decode_request
from maskedlark.workflow import Workflow
from tests.unit.test_workflow import measuring

CLIENTS = 16
AFFORDED = 5
"""Queries of ε = 1 that the budget allows, give or take the noise by which they are told apart."""


@pytest.fixture(params=[2, 3])
def way(request) -> Iterator[Workflow]:
    with measuring(request.param, epsilon=AFFORDED + 0.5, floor=0.5) as way:
        way.make_aggregate_dataset("table", [[1] * 20, ["Rome"] * 20], [[1] * 20, [1] * 20], decoded=True)
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
            noise = decode_request(body).noise
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
