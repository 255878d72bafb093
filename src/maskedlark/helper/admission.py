"""Admission: a request's origin is verified before its body is read, and no more is read than has room."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from maskedlark.helper.config import Limits
from maskedlark.web import body
from maskedlark.web.body import BodyMemory
from maskedlark.web.clock_check import ClockCheck
from maskedlark.web.errors import TooManyUploads, WrongContentType
from maskedlark.web.request_signature import NO_BODY_TYPE, RequestVerifier

VERIFYING = 32
"""Threads that verify callers. One per origin may wait for its key; that must not occupy them all."""
HASHED_HERE = 1 << 15
"""Up to this many bytes, hashing a body here is faster than starting a thread for it."""


class RequestAdmission:
    """Admits signed requests. Run by a helper."""

    def __init__(self, verifier: RequestVerifier, limits: Limits, clock: ClockCheck) -> None:
        self._verifier, self.limits, self._clock = verifier, limits, clock
        self._memory = BodyMemory(
            limits.bodies * max(limits.chunk_bytes, limits.freeze_bytes, limits.step_bytes)
        )
        self._share = max(1, limits.bodies // 2)
        self._held: Counter[str] = Counter()
        self._verifying = ThreadPoolExecutor(VERIFYING, "verifying")

    async def caller(self, request: Request) -> str:
        """The origin of a request without a body."""
        async with self.body(request, NO_BODY_TYPE, 0) as (origin, _):
            return origin

    @asynccontextmanager
    async def body(
        self, request: Request, media_type: str, max_bytes: int
    ) -> AsyncIterator[tuple[str, bytes]]:
        """A request's origin, and its body as the origin signed it; the block holds its memory."""
        # The raw path, since that was signed. In a pool of its own: the origin's key may have to be fetched,
        # and other work must not wait for that.
        sent = (request.scope[part] for part in ("method", "raw_path", "query_string", "headers"))
        loop = asyncio.get_running_loop()
        admitted = await loop.run_in_executor(self._verifying, self._verifier.verify, *sent)
        self._clock.fresh_request(admitted.origin)
        request.state.origin = admitted.origin  # For logs and counts, which name only signers.
        if request.headers.get("content-type", "") != media_type:
            raise WrongContentType(f"send this as {media_type}")
        # Only signed callers get memory: a stranger cannot use it up.
        with self._place_of(admitted.origin), self._memory.reserve() as reservation:
            data = await body.read(request, max_bytes, self.limits.body_within_s, reservation)
            if len(data) <= HASHED_HERE:
                admitted.check(data)
            else:
                await run_in_threadpool(admitted.check, data)
            yield admitted.origin, data

    @contextmanager
    def _place_of(self, origin: str) -> Iterator[None]:
        """One origin has at most half of the bodies. Only in the loop's thread, so nothing is locked."""
        if self._held[origin] >= self._share:
            raise TooManyUploads(f"{origin} has {self._share} bodies here already; try again later")
        self._held[origin] += 1
        try:
            yield
        finally:
            self._held[origin] -= 1
