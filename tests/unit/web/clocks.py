"""Checks of a clock against a parameter service in memory, which may have another one, or be away."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from maskedlark.clock import Clock, FixedClock
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.publisher import Pinned
from maskedlark.parameter_service.store import Store
from maskedlark.randomness import SystemRandomness
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import SERVICE_KEY
from tests.unit.web.service import URL, AppTransport, away

Answers = Callable[[httpx.Request], httpx.Response]


class Asked(httpx.BaseTransport):
    """Says when the service has been asked three times."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.times, self.thrice = answers, 0, threading.Event()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.times += 1
        try:
            return self.answers(request)
        finally:
            if self.times % 3 == 0:
                self.thrice.set()


def service(clock: Clock, key: SigningKey = SERVICE_KEY) -> Answers:
    """A real parameter service with this clock; its time is all that it can be asked for."""
    with TemporaryDirectory() as folder, closing(Store(Path(folder) / "parameters.db")) as store:
        return AppTransport(create_app(store, key, clock, Pinned())).handle_request


def check(clock: Clock, transport: httpx.BaseTransport) -> ClockCheck:
    """A check by that service, before it compares for the first time."""
    parameters = ParameterClient(
        URL, SERVICE_KEY.verifying, Path("nowhere"), clock, {}, http=httpx.Client(transport=transport)
    )
    return ClockCheck(clock, parameters, SystemRandomness())


def confirmed(clock: Clock) -> ClockCheck:
    """A check by a service with the same clock."""
    made = check(clock, Asked(service(clock)))
    made.compare()
    return made


def unconfirmed() -> ClockCheck:
    """A check with nothing to compare with."""
    return check(FixedClock(0), Asked(away))
