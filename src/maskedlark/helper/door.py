"""The door of a helper: who speaks is known before a body is read, and only as much is read as has room."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from maskedlark.helper.config import Limits
from maskedlark.web import body, gate
from maskedlark.web.body import Room
from maskedlark.web.errors import WrongContentType
from maskedlark.web.gate import Gate
from maskedlark.web.request_signature import NO_BODY_TYPE


class Door:
    """Lets signed requests in."""

    def __init__(self, keeper: Gate, limits: Limits) -> None:
        self._gate = keeper
        self._room = Room(limits.bodies)
        self._within_s = limits.body_within_s

    async def caller(self, request: Request) -> str:
        """The origin of a request without a body."""
        async with self.body(request, NO_BODY_TYPE, 0) as (origin, _):
            return origin

    @asynccontextmanager
    async def body(
        self, request: Request, media_type: str, most_bytes: int
    ) -> AsyncIterator[tuple[str, bytes]]:
        """A request's origin, and its body as the origin signed it; the block keeps a place for it."""
        admitted = await gate.admit(request, self._gate)
        if request.headers.get("content-type", "") != media_type:
            raise WrongContentType(f"send this as {media_type}")
        # Only those who signed take a place: a stranger cannot fill the room.
        with self._room.place():
            found = await body.read(request, most_bytes, self._within_s)
            await run_in_threadpool(admitted.check, found)
            yield admitted.origin, found
