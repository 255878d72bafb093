"""What is seen of every request, from outside: a line in the log, and counts. Run by every service.

Of the path only its template, of the sender only who signed: no address, no query, no byte of a body.
"""

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskedlark.web.counts import Counts

OTHER = "other"
"""The route and the method of whatever we do not have: a stranger can add nothing to what is counted."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
QUIET = frozenset({"/health", "/ready"})
"""Asked every few seconds, by machines: only what goes wrong there is worth a line."""
UNANSWERED = "none"
_log = logging.getLogger(__name__)


@dataclass
class Seen:
    """One request, and what was answered."""

    scope: Scope
    begun: float
    status: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def method(self) -> str:
        """A known one, or `other`."""
        return self.scope["method"] if self.scope["method"] in METHODS else OTHER

    @property
    def route(self) -> str:
        """The path as it is declared, with the names of its parts in the place of what stood there."""
        # Of an included router FastAPI keeps the whole path here; releases before that had it in the route.
        effective = self.scope.get("fastapi", {}).get("effective_route_context")
        return getattr(effective or self.scope.get("route"), "path", None) or OTHER

    def state(self, name: str) -> Any:  # noqa: ANN401
        """What the service found out while it answered."""
        return self.scope["state"].get(name)


class Observed:
    """The outermost layer of an app."""

    def __init__(self, app: ASGIApp, counts: Counts) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, and look at it when it is over, however it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        seen = Seen(scope, perf_counter())

        async def receiving() -> Message:
            message = await receive()
            seen.bytes_in += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            seen.status = message.get("status", seen.status)
            seen.bytes_out += len(message.get("body", b""))
            await send(message)

        with self._counts.in_flight.track_inprogress():
            try:
                await self._app(scope, receiving, sending)
            finally:
                self._note(seen, perf_counter() - seen.begun)

    def _note(self, seen: Seen, took_s: float) -> None:
        route, method, origin, reason = seen.route, seen.method, seen.state("origin"), seen.state("problem")
        counts = self._counts
        counts.requests.labels(route, method, str(seen.status or UNANSWERED)).inc()
        counts.seconds.labels(route, method).observe(took_s)
        counts.bytes_in.labels(route).inc(seen.bytes_in)
        counts.bytes_out.labels(route).inc(seen.bytes_out)
        if reason is not None:
            counts.problems.labels(reason).inc()
        if origin is not None:
            counts.signed.labels(origin).inc()
        if route not in QUIET or seen.status != 200:
            _log.info("request", extra=_fields(seen, route, method, took_s))


def _fields(seen: Seen, route: str, method: str, took_s: float) -> dict[str, object]:
    origin = seen.state("origin")
    return {
        "route": route,
        "method": method,
        "status": seen.status or UNANSWERED,
        "ms": round(took_s * 1000, 3),
        "bytes_in": seen.bytes_in,
        "bytes_out": seen.bytes_out,
        "origin": origin,
        # Of those who signed alone: what a stranger writes there is not worth keeping.
        "dataset": seen.scope.get("path_params", {}).get("name") if origin else None,
        "reason": seen.state("problem"),
    }
