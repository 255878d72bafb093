"""Reading a stranger's body: never more than the limit, never for longer, never too many at once."""

import asyncio
import threading
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from maskedlark.web.errors import BodyCutOff, BodyTooLarge, BodyTooSlow, TooManyUploads


class Room:
    """Places for bodies. Who finds none is sent away at once, to come again later."""

    def __init__(self, places: int) -> None:
        self._free = threading.Semaphore(places)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One place, for as long as the block runs."""
        if not self._free.acquire(blocking=False):
            raise TooManyUploads("too many uploads at once; try again later")
        try:
            yield
        finally:
            self._free.release()


async def read(request: Request, most_bytes: int, within_s: float) -> bytes:
    """The request's body. Run by every service."""
    # What a header promises is refused before a byte is read; what it does not promise, while it comes.
    if _promised(request) > most_bytes:
        raise _too_large(most_bytes)
    try:
        async with asyncio.timeout(within_s):
            found = await _collect(request.stream(), most_bytes)
    except TimeoutError:
        raise BodyTooSlow(f"a body has {within_s:g} seconds; send less") from None
    except ClientDisconnect:
        request.state.body_ended = True
        raise BodyCutOff("the sender went away before the end of the body") from None
    request.state.body_ended = True
    return found


def is_left(request: Request) -> bool:
    """Whether some of the request's body may not have been read: a server would read it, to no end."""
    if getattr(request.state, "body_ended", False):
        return False
    # Of other methods nobody expects a body, and one that comes is announced.
    unsaid = "0" if request.method in ("GET", "HEAD", "DELETE", "OPTIONS") else "unknown"
    return "transfer-encoding" in request.headers or request.headers.get("content-length", unsaid) != "0"


async def _collect(chunks: AsyncIterable[bytes], most_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > most_bytes:
            raise _too_large(most_bytes)
        body += chunk
    return bytes(body)


def _promised(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _too_large(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {most_bytes} bytes; send less at once")
