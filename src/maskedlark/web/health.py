"""`/health`: the process answers. `/ready`: it can do its work now. For orchestrators and load balancers."""

import copy
import logging
import math
import threading
import time
from collections.abc import Callable

from fastapi import FastAPI, Request

from maskedlark.errors import MaskedLarkError
from maskedlark.web import metrics, problem
from maskedlark.web.errors import Draining, NotReady

EVERY_S = 2.0
"""From one look to the next, however often strangers ask."""
_log = logging.getLogger(__name__)


class Readiness:
    """Whether a service can do its work. While one thread looks, others get what the look before found."""

    def __init__(self, check: Callable[[], None], now: Callable[[], float] = time.monotonic) -> None:
        self.checks, self._now = [check], now
        self._looking, self._next = threading.Lock(), -math.inf
        self._fault: Exception | None = NotReady("this service has only just begun; ask again later")

    def check(self) -> None:
        """Return if it can do its work now; raise why not."""
        if self._now() >= self._next and self._looking.acquire(blocking=False):
            try:
                for check in self.checks:
                    check()
                self._fault = None
            except Exception as error:  # noqa: BLE001 - raised to whoever asks
                if isinstance(error, MaskedLarkError | OSError):  # Nobody has checked another's message.
                    # Details for the operator alone, such as paths, are in the log.
                    _log.error("not ready: %s: %s", type(error).__name__, error)
                self._fault = error
            self._next = self._now() + EVERY_S
            self._looking.release()
        if (fault := self._fault) is not None:
            raise copy.copy(fault)  # Threads that raise the same one would write into each other's traceback.


def install(app: FastAPI, check: Callable[[], None]) -> None:
    """Both endpoints and the metric. `check` raises an error while the service cannot work; it may block."""
    readiness = app.state.readiness = Readiness(check)
    metrics.ready(readiness.check, app.state.metrics)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the process answers. Looks at nothing else: a restart would not bring a database back."""
        return {"status": "ok"}

    @app.get("/ready")
    def ready(request: Request) -> dict[str, str]:
        """Whether requests should be sent here now."""
        if request.app.state.draining:
            raise Draining("this service is about to stop; ask again later")
        try:
            readiness.check()
        except (MaskedLarkError, OSError) as error:
            if isinstance(error, MaskedLarkError) and problem.of(error).status == 503:
                raise
            raise NotReady(f"this service cannot do its work now: {type(error).__name__}") from error
        return {"status": "ready"}
