import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.clock import FixedClock
from maskedlark.helper.request_keys import FAILED_S, RequestKeys
from maskedlark.randomness import FixedRandomness
from maskedlark.web.errors import ServiceAway, UnknownOrigin
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import REQUEST_KEY, make

NOW, FRESH_S, ORIGIN = 1_900_000_000, 60, "ads.example"
FRESH = SigningKey(FixedRandomness(b"fresh").bytes(32)).verifying


class Chains:
    """A parameter client that says what it is told to, and counts how often it was asked."""

    def __init__(self):
        self.documents, self.asked, self.fault = [make()], 0, None

    def __call__(self, _):
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return self.documents


@pytest.fixture
def clock():
    return FixedClock(NOW)


@pytest.fixture
def chains():
    return Chains()


@pytest.fixture
def signers(chains, clock):
    return RequestKeys([ORIGIN], chains, FRESH_S, clock)


def test_it_is_the_key_of_the_newest_document(signers, chains):
    assert signers.key_of(ORIGIN) == REQUEST_KEY.verifying
    chains.documents.append(make(request_key=FRESH.public.hex()))
    assert signers.key_of(ORIGIN) == REQUEST_KEY.verifying  # Asked a moment ago.


def test_it_is_never_older_than_it_may_be(signers, chains, clock):
    signers.key_of(ORIGIN)
    chains.documents.append(make(request_key=FRESH.public.hex()))
    clock.seconds += FRESH_S - 1
    assert signers.key_of(ORIGIN) == REQUEST_KEY.verifying
    clock.seconds += 1
    assert signers.key_of(ORIGIN) == FRESH
    assert chains.asked == 2


def test_a_clock_that_was_put_back_makes_nothing_fresh_for_ever(signers, chains, clock):
    signers.key_of(ORIGIN)
    clock.seconds -= 1000
    signers.key_of(ORIGIN)
    assert chains.asked == 2


def test_an_expired_document_still_names_the_key(signers, chains):
    chains.documents = [make(not_after=NOW - 1)]
    assert signers.key_of(ORIGIN) == REQUEST_KEY.verifying


def test_strangers_cannot_make_it_ask(signers, chains):
    for origin in ("other.example", "", "x" * 1000):
        with pytest.raises(UnknownOrigin):
            signers.key_of(origin)
    assert chains.asked == 0


def test_a_failure_is_remembered_for_a_moment(signers, chains, clock):
    chains.fault = ServiceAway("it is away")
    for _ in range(3):
        with pytest.raises(ServiceAway):
            signers.key_of(ORIGIN)
    assert chains.asked == 1
    chains.fault = None
    clock.seconds += FAILED_S
    assert signers.key_of(ORIGIN) == REQUEST_KEY.verifying


def test_many_who_ask_at_once_are_one_question(chains, clock):
    inside, leave = threading.Semaphore(0), threading.Event()

    def chain(origin):
        inside.release()
        assert leave.wait(30)
        return chains(origin)

    signers = RequestKeys([ORIGIN], chain, FRESH_S, clock, wait_s=30)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(signers.key_of, ORIGIN) for _ in range(8)]
        assert inside.acquire(timeout=30)
        assert not inside.acquire(timeout=0.5), "another one asks too"
        leave.set()
        assert {each.result() for each in asked} == {REQUEST_KEY.verifying}
    assert chains.asked == 1


@pytest.fixture
def hanging(chains, clock):
    """A thread that asks, and gets no answer until the test is over."""
    inside, leave, hang = threading.Event(), threading.Event(), threading.Event()

    def chain(origin):
        if hang.is_set():
            inside.set()
            assert leave.wait(30)
        return chains(origin)

    signers = RequestKeys([ORIGIN], chain, FRESH_S, clock, wait_s=0.05)
    with ThreadPoolExecutor(2) as pool:

        def begin():
            hang.set()
            asked = pool.submit(signers.key_of, ORIGIN)
            assert inside.wait(30)
            return pool, asked

        yield signers, begin
        leave.set()


def test_while_one_asks_others_go_on_with_the_old_key(hanging, clock):
    signers, begin = hanging
    signers.key_of(ORIGIN)
    clock.seconds += FRESH_S
    pool, asked = begin()
    assert pool.submit(signers.key_of, ORIGIN).result(30) == REQUEST_KEY.verifying
    assert not asked.done()


def test_without_an_old_key_nobody_waits_for_long(hanging):
    signers, begin = hanging
    pool, asked = begin()
    with pytest.raises(ServiceAway, match="again"):
        pool.submit(signers.key_of, ORIGIN).result(30)
    assert not asked.done()
