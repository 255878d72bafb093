"""Admission of requests: who speaks is known before a body is read, and only as much is read as has room."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from maskedlark.helper.config import Limits
from maskedlark.web import body
from maskedlark.web.body import Room
from maskedlark.web.errors import TooManyUploads, WrongContentType
from maskedlark.web.request_signature import NO_BODY_TYPE, RequestVerifier

VERIFYING = 32
"""Threads that verify who speaks. One per origin may wait for its key; these must not be all."""
HASHED_HERE = 1 << 15
"""A body of so many bytes is hashed before a thread that would do it has begun."""


class RequestAdmission:
    """Admits signed requests. Run by a helper."""

    def __init__(self, verifier: RequestVerifier, limits: Limits) -> None:
        self._verifier = verifier
        self._room = Room(limits.bodies * max(limits.chunk_bytes, limits.sealing_bytes, limits.step_bytes))
        self._share = max(1, limits.bodies // 2)
        self._held: Counter[str] = Counter()
        self._verifying = ThreadPoolExecutor(VERIFYING, "verifying")
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
        # Not the decoded path: what was sent was signed. In threads for this alone: the origin's key may be
        # fetched, and who needs none must not wait for that.
        sent = (request.scope[part] for part in ("method", "raw_path", "query_string", "headers"))
        loop = asyncio.get_running_loop()
        admitted = await loop.run_in_executor(self._verifying, self._verifier.verify, *sent)
        request.state.origin = admitted.origin  # For logs and counts, which name nobody who did not sign.
        if request.headers.get("content-type", "") != media_type:
            raise WrongContentType(f"send this as {media_type}")
        # Only those who signed get a place: a stranger cannot fill the room.
        with self._place_of(admitted.origin), self._room.place() as place:
            data = await body.read(request, most_bytes, self._within_s, place)
            if len(data) <= HASHED_HERE:
                admitted.check(data)
            else:
                await run_in_threadpool(admitted.check, data)
            yield admitted.origin, data

    @contextmanager
    def _place_of(self, origin: str) -> Iterator[None]:
        """One origin has half of the bodies at most. In the loop's thread alone, so nothing is locked."""
        if self._held[origin] >= self._share:
            raise TooManyUploads(f"{origin} has {self._share} bodies here already; try again later")
        self._held[origin] += 1
        try:
            yield
        finally:
            self._held[origin] -= 1
