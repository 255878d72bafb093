"""`/health`: the process answers. `/ready`: it can do its work now. For orchestrators and load balancers."""

import logging
from collections.abc import Callable

from fastapi import APIRouter, Request

from maskedlark.errors import MaskedLarkError
from maskedlark.web import problem
from maskedlark.web.errors import Draining, NotReady

_log = logging.getLogger(__name__)


def router(check: Callable[[], None]) -> APIRouter:
    """Both endpoints. `check` raises an error of ours while the service cannot do its work; it may block."""
    made = APIRouter()

    @made.get("/health")
    async def health() -> dict[str, str]:
        """Whether the process answers. Looks at nothing else: a restart would not bring a database back."""
        return {"status": "ok"}

    @made.get("/ready")
    def ready(request: Request) -> dict[str, str]:
        """Whether requests should be sent here now."""
        if request.app.state.draining:
            raise Draining("this service is about to stop; ask again later")
        try:
            check()
        except (MaskedLarkError, OSError) as error:
            if isinstance(error, MaskedLarkError) and problem.of(error).status == 503:
                raise
            # Every fault is a 503 here. Details for the operator alone, such as paths, are in the log.
            _log.error("not ready: %s: %s", type(error).__name__, error)
            raise NotReady(f"this service cannot do its work now: {type(error).__name__}") from error
        return {"status": "ready"}

    return made
