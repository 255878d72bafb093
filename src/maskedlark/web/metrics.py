"""Prometheus metrics of a service, with one registry per app. Run by every service.

`/metrics` is not a route of an app: senders of reports and queries have no business there. `serving` opens a
separate listener for it, on this machine alone by default.

Every request also becomes a log line, with the template of its path and the origin that signed it: no
address, no query, no byte of a body. No count is secret: senders, and anyone on the line, see routes,
methods, statuses, sizes, times and problems. They depend on what is public; side-channel tests check that.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
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
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskedlark.errors import MaskedLarkError
from maskedlark.web.remote import REQUEST_ID, new_request_id

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER = "other"
"""Stands for unknown routes and methods: a stranger cannot add labels."""
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
QUIET = frozenset({"/health", "/ready"})
"""Asked every few seconds, by machines: only failures are worth a log line."""
UNANSWERED = "none"
_REQUEST_ID = re.compile(rb"[a-z0-9-]{8,32}")

Labels = tuple[str, ...]
M = TypeVar("M", Counter, Gauge, Histogram)
_log = logging.getLogger(__name__)


def install(app: FastAPI, service: str) -> CollectorRegistry:
    """Count the app's requests. Run by every service, after `answers.install`: it must see all answers."""
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
        self.bytes_in = made(Counter, "maskedlark_request_body_bytes", "Bytes of bodies read.", "route")
        self.bytes_out = made(Counter, "maskedlark_response_body_bytes", "Bytes of bodies sent.", "route")
        problems = "Problem documents that were answered, by the last part of their type."
        self.problems = made(Counter, "maskedlark_problems", problems, "type")
        signed = "Requests by the pinned origin that signed them."
        self.signed = made(Counter, "maskedlark_signed_requests", signed, "origin")


@dataclass
class ObservedRequest:
    """One request and its answer."""

    scope: Scope
    begun: float
    status: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def route(self) -> str:
        """The path's template, with names in place of values."""
        # For included routers FastAPI keeps the whole path here; earlier releases had it in the route.
        effective = self.scope.get("fastapi", {}).get("effective_route_context")
        return getattr(effective or self.scope.get("route"), "path", None) or OTHER

    @cached_property
    def id(self) -> str:
        """The signer's, or our own: a stranger must not write into logs, nor link a browser's requests."""
        given = [value for name, value in self.scope["headers"] if name == REQUEST_ID.encode()]
        is_taken = "origin" in self.scope["state"] and len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
        return given[0].decode() if is_taken else new_request_id()


class RequestObserver:
    """The outermost layer of an app: counts and logs every request. Run by every service."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record it when it has ended, however it ended."""
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
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = seen.id
            await send(message)

        with self._counts.in_flight.track_inprogress():
            try:
                await self._app(scope, receiving, sending)
            finally:
                self._note(seen, perf_counter() - seen.begun)

    def _note(self, seen: ObservedRequest, took_s: float) -> None:
        route, status = seen.route, seen.status or UNANSWERED
        method = seen.scope["method"] if seen.scope["method"] in METHODS else OTHER
        # Set by the service while it answered.
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
        fields = {"route": route, "method": method, "status": status, "origin": origin, "reason": reason}
        fields |= {"bytes_in": seen.bytes_in, "bytes_out": seen.bytes_out, "request_id": seen.id}
        fields["ms"] = round(took_s * 1000, 3)
        # Only of signed requests: what a stranger writes there is not worth keeping.
        fields["dataset"] = seen.scope.get("path_params", {}).get("name") if origin else None
        _log.info("request", extra=fields)


class LazyGauge(Collector):
    """Gauges that are computed when they are read. What cannot be computed then is left out."""

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
        """The name alone: nothing is computed."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One value per label; none while a database or file is unavailable, so that the page still loads."""
        family = self._family()
        with suppress(MaskedLarkError, OSError):
            for labels, value in sorted(self._find().items()):
                family.add_metric(labels, value)
        return [family]


def ready(check: Callable[[], None], registry: CollectorRegistry) -> None:
    """Show what `/ready` would answer, apart from draining."""

    def find() -> dict[Labels, float]:
        with suppress(MaskedLarkError, OSError):
            check()
            return {(): 1.0}
        return {(): 0.0}

    LazyGauge("maskedlark_ready", "1 if the service can do its work now.", (), find, registry)


def disk(find: Callable[[], tuple[int, int, int] | None], registry: CollectorRegistry) -> None:
    """Show the disk where a service writes: `find` gives its bytes in all, used and free, or None."""

    def part(index: int) -> dict[Labels, float]:
        return {(): float(found[index])} if (found := find()) else {}

    total, free = "Room for the service's data in all.", "Room that is left where the service keeps its data."
    LazyGauge("maskedlark_disk_total_bytes", total, (), lambda: part(0), registry)
    LazyGauge("maskedlark_disk_free_bytes", free, (), lambda: part(2), registry)


def certificate(left_s: Callable[[], float], registry: CollectorRegistry) -> None:
    """Show how long a service's certificate lasts."""
    until = "Until the certificate ends: renew it before that."
    LazyGauge("maskedlark_certificate_end_seconds", until, (), lambda: {(): left_s()}, registry)
