"""The ad server over HTTP: takes uploads, and says whether it is ready. Run by the ad server."""

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from maskedlark.adserver.body import read_upload
from maskedlark.adserver.door import Door
from maskedlark.adserver.limits import Limits
from maskedlark.adserver.metrics import UploadCounts
from maskedlark.adserver.report_store import Reports
from maskedlark.clock import Clock
from maskedlark.web import answers, health, metrics
from maskedlark.web.body import Room
from maskedlark.wire import uploads

_UPLOAD = {"requestBody": {"required": True, "content": {uploads.CONTENT_TYPE: {}}}}


def create_app(origin: str, reports: Reports, clock: Clock, limits: Limits | None = None) -> FastAPI:
    """The ad server of one origin, over its table of reports."""
    app = FastAPI(title="Masked LARk ad server", docs_url=None, redoc_url=None)
    limits = limits or Limits()
    door = Door(origin, reports, clock, limits)
    room = Room(limits.uploads * limits.body_bytes)
    answers.install(app)
    counts = UploadCounts(reports.check, metrics.install(app, "adserver"))
    app.include_router(health.router(reports.check))

    @app.post("/reports", response_model=uploads.Answers, openapi_extra=_UPLOAD)
    async def upload(request: Request) -> Response:
        """Take a batch of reports: one answer for each, in order, when what was taken is durable."""
        with room.place() as place:
            body = await read_upload(request, limits, place)
            # A thread of its own: checking and the disk would hold up every other upload.
            given = await run_in_threadpool(door.accept, body)
        counts.answered(given)
        return Response(uploads.encode_answers(given), media_type="application/json")

    return app
