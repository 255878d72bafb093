"""Metrics of a service, for Prometheus: a registry of its own for every app, read where the operator says.

`/metrics` is no route of an app: who may send reports or ask questions has no business there. `serving` opens
a listener of its own for it, on this machine alone unless it is told otherwise.

Every request also becomes a line in the log. Of its path only the template is kept, of its sender only who
signed: no address, no query, no byte of a body. Nothing that is counted is a secret: routes, methods,
statuses, sizes, times and kinds of problems are seen by whoever sends requests, and on the line. They depend
on what is public, which tests of side channels hold the services to.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from fastapi import FastAPI
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskedlark.errors import MaskedLarkError

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER = "other"
"""The route and the method of whatever we do not have: a stranger can add nothing to what is counted."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
QUIET = frozenset({"/health", "/ready"})
"""Asked every few seconds, by machines: only what goes wrong there is worth a line."""
UNANSWERED = "none"

Labels = tuple[str, ...]
M = TypeVar("M", Counter, Gauge, Histogram)
_log = logging.getLogger(__name__)


def install(app: FastAPI, service: str) -> CollectorRegistry:
    """Count what the app does. Run by every service, after `answers.install`: it must see all answers."""
    registry = CollectorRegistry(auto_describe=True)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    build = Info("maskedlark_build", "What runs here.", registry=registry)
    build.info({"service": service, "version": version("maskedlark")})
    app.add_middleware(RequestObserver, counts=RequestCounts(registry))
    app.state.metrics = registry
    return registry


class RequestCounts:
    """What one app counts of its requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def made(kind: Callable[..., M], name: str, text: str, *labels: str, **more: object) -> M:
            return kind(name, text, labels, registry=registry, **more)

        answered = "Requests that were answered, by the declared path."
        self.requests = made(Counter, "maskedlark_requests", answered, "route", "method", "status")
        took = "From the head of a request to the end of its answer."
        self.seconds = made(Histogram, "maskedlark_request_seconds", took, "route", "method", buckets=SECONDS)
        self.in_flight = made(Gauge, "maskedlark_requests_in_flight", "Requests that are being answered now.")
        self.bytes_in = made(
            Counter, "maskedlark_request_body_bytes", "Bytes of bodies that were read.", "route"
        )
        self.bytes_out = made(
            Counter, "maskedlark_response_body_bytes", "Bytes of bodies that were sent.", "route"
        )
        problems = "Problem documents that were answered, by the last part of their type."
        self.problems = made(Counter, "maskedlark_problems", problems, "type")
        signed = "Requests by the pinned origin that signed them."
        self.signed = made(Counter, "maskedlark_signed_requests", signed, "origin")


@dataclass
class ObservedRequest:
    """One request, and what was answered."""

    scope: Scope
    begun: float
    status: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def route(self) -> str:
        """The path as it is declared, with the names of its parts in the place of what stood there."""
        # Of an included router FastAPI keeps the whole path here; releases before that had it in the route.
        effective = self.scope.get("fastapi", {}).get("effective_route_context")
        return getattr(effective or self.scope.get("route"), "path", None) or OTHER


class RequestObserver:
    """The outermost layer of an app: counts and logs every request. Run by every service."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, and look at it when it is over, however it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        seen = ObservedRequest(scope, perf_counter())

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

    def _note(self, seen: ObservedRequest, took_s: float) -> None:
        route, status = seen.route, seen.status or UNANSWERED
        method = seen.scope["method"] if seen.scope["method"] in METHODS else OTHER
        # What the service found out while it answered.
        origin, reason = map(seen.scope["state"].get, ("origin", "problem"))
        counts = self._counts
        counts.requests.labels(route, method, str(status)).inc()
        counts.seconds.labels(route, method).observe(took_s)
        counts.bytes_in.labels(route).inc(seen.bytes_in)
        counts.bytes_out.labels(route).inc(seen.bytes_out)
        if reason is not None:
            counts.problems.labels(reason).inc()
        if origin is not None:
            counts.signed.labels(origin).inc()
        if route in QUIET and status == 200:
            return
        fields = {
            "route": route,
            "method": method,
            "status": status,
            "ms": round(took_s * 1000, 3),
            "bytes_in": seen.bytes_in,
            "bytes_out": seen.bytes_out,
            "origin": origin,
            # Of those who signed alone: what a stranger writes there is not worth keeping.
            "dataset": seen.scope.get("path_params", {}).get("name") if origin else None,
            "reason": reason,
        }
        _log.info("request", extra=fields)


class LazyGauge(Collector):
    """Gauges that are looked up when somebody asks for them. What cannot be known then is left out."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Labels,
        find: Callable[[], Mapping[Labels, float]],
        registry: CollectorRegistry,
    ) -> None:
        self._family = partial(GaugeMetricFamily, name, help_text, labels=labels)
        self._find = find
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The name alone: nothing is looked up."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One value per label; none while a database or file is away: the page must come all the same."""
        family = self._family()
        with suppress(MaskedLarkError, OSError):
            for labels, value in sorted(self._find().items()):
                family.add_metric(labels, value)
        return [family]


def ready(check: Callable[[], None], registry: CollectorRegistry) -> None:
    """Show what `/ready` would say, draining aside."""

    def find() -> dict[Labels, float]:
        with suppress(MaskedLarkError, OSError):
            check()
            return {(): 1.0}
        return {(): 0.0}

    LazyGauge("maskedlark_ready", "1 if the service can do its work now.", (), find, registry)


def disk(folder: Path, registry: CollectorRegistry) -> None:
    """Show how much room is left where a service writes."""
    room = "Room that is left where the service keeps its data."
    usage = partial(shutil.disk_usage, folder)
    LazyGauge("maskedlark_disk_free_bytes", room, (), lambda: {(): float(usage().free)}, registry)
