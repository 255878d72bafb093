"""The ad server over HTTP: takes uploads, and says whether it is well. Run by the ad server."""

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from maskedlark.adserver.body import read_upload
from maskedlark.adserver.door import Door
from maskedlark.adserver.limits import Limits
from maskedlark.clock import Clock
from maskedlark.storage.reports import Reports
from maskedlark.web import answers
from maskedlark.web.body import Room
from maskedlark.wire import uploads

_UPLOAD = {"requestBody": {"required": True, "content": {uploads.CONTENT_TYPE: {}}}}


def create_app(origin: str, reports: Reports, clock: Clock, limits: Limits | None = None) -> FastAPI:
    """The ad server of one origin, over its table of reports."""
    app = FastAPI(title="Masked LARk ad server", docs_url=None, redoc_url=None)
    limits = limits or Limits()
    door = Door(origin, reports, clock, limits)
    room = Room(limits.uploads)
    answers.install(app)

    @app.post("/reports", response_model=uploads.Answers, openapi_extra=_UPLOAD)
    async def upload(request: Request) -> Response:
        """Take a batch of reports: one answer for each, in order, when what was taken is durable."""
        with room.place():
            body = await read_upload(request, limits)
            # A thread of its own: checking and the disk would hold up every other upload.
            answers = await run_in_threadpool(door.accept, body)
        return Response(uploads.encode_answers(answers), media_type="application/json")

    @app.get("/health")
    def health() -> dict[str, str]:
        """Whether the database answers now."""
        reports.check()
        return {"status": "ok"}

    return app
