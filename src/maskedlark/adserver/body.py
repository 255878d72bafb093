"""Reading a stranger's body: of the right kind, never more than the limit, never for longer."""

import asyncio
from collections.abc import AsyncIterable

from starlette.requests import ClientDisconnect, Request

from maskedlark.adserver.errors import BodyCutOff, BodyTooSlow, WrongContentType
from maskedlark.adserver.limits import Limits
from maskedlark.web.errors import BodyTooLarge
from maskedlark.wire.uploads import CONTENT_TYPE


async def read_upload(request: Request, limits: Limits) -> bytes:
    """The body of an upload. Run by the ad server."""
    if request.headers.get("content-type", "").strip().lower() != CONTENT_TYPE:
        raise WrongContentType(f"send reports as {CONTENT_TYPE}")
    # What a header promises is refused before a byte is read; what it does not promise, while it comes.
    if _promised(request) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await _collect(request.stream(), limits)
    except TimeoutError:
        raise BodyTooSlow(f"an upload has {limits.body_timeout_s} seconds; send fewer reports") from None
    except ClientDisconnect:
        raise BodyCutOff("the sender went away before the end of the upload") from None


async def _collect(chunks: AsyncIterable[bytes], limits: Limits) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > limits.body_bytes:
            raise _too_large(limits)
        body += chunk
    return bytes(body)


def _promised(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _too_large(limits: Limits) -> BodyTooLarge:
    return BodyTooLarge(f"an upload has at most {limits.body_bytes} bytes; send fewer reports at once")
