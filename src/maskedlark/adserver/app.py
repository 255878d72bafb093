"""The ad server over HTTP: takes uploads, and reports whether it is ready. Run by the ad server."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import prometheus_client
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, Histogram

from maskedlark.adserver.config import Limits
from maskedlark.adserver.dataset_store import Datasets, DatasetState
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.upload_limits import UploadLimits
from maskedlark.adserver.uploads import Documents, UploadHandler
from maskedlark.clock import Clock
from maskedlark.web import body, error_responses, health, metrics
from maskedlark.web.body import BodyMemory, Reservation
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import WrongContentType
from maskedlark.web.metrics import Labels, LazyGauge
from maskedlark.web.remote import API
from maskedlark.wire import uploads
from maskedlark.wire.uploads import Answer

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
COUNTED = 100_000
"""Unselected reports are counted up to this: the page must not take longer the more there are."""
_UPLOAD = {"requestBody": {"required": True, "content": {uploads.CONTENT_TYPE: {}}}}


def create_app(
    origin: str,
    reports: Reports,
    clock: Clock,
    documents: Documents,
    limits: Limits | None = None,
    clock_check: ClockCheck | None = None,
) -> FastAPI:
    """The ad server of one origin, over its table of reports. `documents` has all documents of the origin."""
    limits = limits or Limits()
    handler = UploadHandler(origin, reports, clock, documents, limits, clock_check)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        handler.layouts.close()

    app = FastAPI(title="Masked LARk ad server", docs_url=None, redoc_url=None, lifespan=lifespan)
    rates = UploadLimits(limits, reports.database)

    def set_limits(now: Limits) -> None:
        handler.limits = rates.limits = now

    memory = BodyMemory(limits.uploads * limits.body_bytes)
    app.state.set_limits = set_limits
    error_responses.install(app)
    registry = metrics.install(app, "adserver")
    counts = UploadCounts(registry)
    show_stored(reports, registry)
    health.install(app, reports.check)
    if clock_check:
        app.state.readiness.checks.append(clock_check.check)

    @app.post(f"{API}/reports", response_model=uploads.Answers, openapi_extra=_UPLOAD)
    async def upload(request: Request) -> Response:
        """Take a batch of reports: one answer for each, in order, when what was taken is durable."""
        await rates.check_disk()
        most = handler.limits.body_bytes
        # A chunked body may have any size, whatever stands beside it.
        announced = most if "transfer-encoding" in request.headers else body.announced(request, most)
        host = request.client and request.client.host
        with rates.upload(host, announced) as taken, memory.reserve() as reservation:
            batch = await read_upload(request, handler.limits, reservation)
            taken["bytes"] = len(batch)
            # In a thread: checks and disk writes would hold up every other upload.
            given = await run_in_threadpool(handler.accept, batch)
            taken["reports"] = len(given)
        counts.answered(given)
        return Response(uploads.encode_answers(given), media_type="application/json")

    return app


async def read_upload(request: Request, limits: Limits, reservation: Reservation) -> bytes:
    """The body of an upload: of the right content type, and within the limits."""
    if request.headers.get("content-type", "").strip().lower() != uploads.CONTENT_TYPE:
        raise WrongContentType(f"send reports as {uploads.CONTENT_TYPE}")
    return await body.read(request, limits.body_bytes, limits.body_within_s, reservation)


class UploadCounts:
    """What an ad server counts besides its requests.

    No count is secret: the sender gets every outcome in its answer, and outcomes depend only on public parts
    and sizes. Reasons are names of our own errors: a sender cannot add one.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = prometheus_client.Counter(
            "maskedlark_reports",
            "Reports that were answered: stored, duplicate, later or refused.",
            ["outcome", "reason"],
            registry=registry,
        )
        self._batch = Histogram(
            "maskedlark_upload_reports", "Reports in an upload.", registry=registry, buckets=SIZES
        )

    def answered(self, given: Sequence[Answer]) -> None:
        """Count a batch. Run when the reports it calls stored are durable."""
        self._batch.observe(len(given))
        outcomes = Counter((each.outcome.value, each.error or "") for each in given)
        for labels, count in outcomes.items():
            self._reports.labels(*labels).inc(count)


def show_stored(reports: Reports, registry: CollectorRegistry) -> None:
    """Show the disk, reports and datasets. No count is secret: answers and helpers tell them."""
    datasets = Datasets(reports.database)

    def states() -> dict[Labels, float]:
        counted = Counter(each.state for each in datasets.all())
        return {(state.value,): float(counted[state]) for state in DatasetState}

    def unselected() -> dict[Labels, float]:
        taken = [each.selection for each in datasets.all() if each.state is not DatasetState.ABORTED]
        return {(): float(reports.unselected(taken, COUNTED))}

    LazyGauge("maskedlark_datasets", "Datasets by where they stand.", ("state",), states, registry)
    text = f"Reports in no dataset, counted up to {COUNTED}."
    LazyGauge("maskedlark_unselected_reports", text, (), unselected, registry)
    metrics.disk(reports.database.disk, registry)
