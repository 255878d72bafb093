"""Reading an upload: of the right kind, and within the limits."""

from starlette.requests import Request

from maskedlark.adserver.limits import Limits
from maskedlark.web import body
from maskedlark.web.body import Place
from maskedlark.web.errors import WrongContentType
from maskedlark.wire.uploads import CONTENT_TYPE


async def read_upload(request: Request, limits: Limits, place: Place) -> bytes:
    """The body of an upload. Run by the ad server."""
    if request.headers.get("content-type", "").strip().lower() != CONTENT_TYPE:
        raise WrongContentType(f"send reports as {CONTENT_TYPE}")
    return await body.read(request, limits.body_bytes, limits.body_within_s, place)
