"""Hostile requests at the three services: whatever is sent, none breaks, and each still works afterwards."""

import logging
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from tests.fuzz import totals
from tests.fuzz.asking import Asking, Sent, check, chosen
from tests.fuzz.running import watched
from tests.fuzz.services import SERVICES


def fuzz(name: str, inputs: int) -> Counter[int]:
    """So many requests, the same every time; how many were answered with each status."""
    rng, statuses, begun = Random(name), Counter[int](), time.process_time()
    # Nothing here has to last: in memory, where there is such a folder, no disk is waited for.
    fast = Path("/dev/shm")
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=fast if fast.is_dir() else None))
        service = stack.enter_context(SERVICES[name](Path(folder)))
        asking = stack.enter_context(Asking(service.app))
        stack.enter_context(watched())
        for request in service.requests:
            check(request, asking.ask(request))
        for number in range(inputs):
            sent = service.drawn(chosen(service.requests, rng), service.requests, rng)
            statuses[_one(asking, sent, f"request {number} to the {name}")] += 1
        service.well()
    totals.ran(name, inputs, time.process_time() - begun, str(dict(sorted(statuses.items()))))
    return statuses


def _one(asking: Asking, sent: Sent, which: str) -> int:
    try:
        got = asking.ask(sent)
        check(sent, got)
    except Exception as error:
        raise AssertionError(f"{which}: {error!r}\n{sent}") from error
    return got.status


@pytest.fixture(autouse=True)
def quiet(caplog):
    """A service that reports a mistake of its own has made one, whatever it answered."""
    caplog.set_level(logging.ERROR)
    yield
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", SERVICES)
def test_hostile_requests_are_answered_and_the_service_works_afterwards(name):
    statuses = fuzz(name, 400)
    assert statuses.total() == 400
    assert statuses[200]
    assert statuses[400]


@pytest.mark.long
@pytest.mark.parametrize("name", SERVICES)
def test_many_hostile_requests_are_answered(name):
    assert fuzz(name, totals.REQUESTS[name]).total() == totals.REQUESTS[name]
