"""Reads a stranger's body: bounded in size, in time, and in the number read at once."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from maskedlark.web.errors import BodyCutOff, BodyTooLarge, BodyTooSlow, TooManyUploads, WrongContentType

GRACE_S = 2.0
"""A body that began less than this ago never gives way to others."""


class BodyMemory:
    """Bounds the memory of bodies, in bytes received: strangers make us hold no more. Used by one thread.

    When none is left, the body that has been coming for longest gives way: a sender that is slow, or stops
    before the end, cannot keep out the others.
    """

    def __init__(self, max_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._free = max_bytes
        self._coming: dict[Reservation, None] = {}
        """In order of arrival."""

    @contextmanager
    def reserve(self) -> Iterator["Reservation"]:
        """Memory for one body, for as long as the block runs."""
        reservation = Reservation(self, self._now())
        self._coming[reservation] = None
        try:
            yield reservation
        finally:
            self._empty(reservation)

    def extend(self, reservation: "Reservation", size: int) -> None:
        """Reserve `size` more bytes. Raises if it gave way, or if none is free and none can be made so."""
        while self._free < size and (longest := self._longest(reservation)) is not None:
            self._empty(longest)
            longest.give_way()
        if self._free < size or reservation.gave_way:
            raise _no_room()
        self._free -= size
        reservation.held += size

    def complete(self, reservation: "Reservation") -> None:
        """The body is complete: it keeps its memory, and no longer gives way."""
        self._coming.pop(reservation, None)

    def _longest(self, asking: "Reservation") -> "Reservation | None":
        longest = next((each for each in self._coming if each is not asking and each.held), None)
        return longest if longest and self._now() - longest.since > GRACE_S else None

    def _empty(self, reservation: "Reservation") -> None:
        self._free += reservation.held
        reservation.held = 0
        self._coming.pop(reservation, None)


class Reservation:
    """The memory that one body takes."""

    def __init__(self, memory: BodyMemory, since: float) -> None:
        self._memory = memory
        self._clock: asyncio.Timeout | None = None
        self.since = since
        self.held = 0
        self.gave_way = False

    def give_way(self) -> None:
        """Stop reading it: others need the memory."""
        self.gave_way = True
        if self._clock is not None:
            self._clock.reschedule(0)

    async def fill(self, chunks: AsyncIterable[bytes], max_bytes: int, within_s: float) -> bytes:
        """The whole body, once it has all arrived."""
        body = bytearray()
        async with asyncio.timeout(within_s) as self._clock:
            async for chunk in chunks:
                if len(body) + len(chunk) > max_bytes:
                    raise _too_large(max_bytes)
                self._memory.extend(self, len(chunk))
                body += chunk
        self._memory.complete(self)
        return bytes(body)


async def read(request: Request, max_bytes: int, within_s: float, reservation: Reservation) -> bytes:
    """The request's body. Run by every service."""
    # If the header states a size, refuse before a byte is read; if not, while reading.
    announced(request, max_bytes)
    # Decompressing would turn a few bytes into many, at our cost.
    if request.headers.get("content-encoding", "identity") != "identity":
        raise WrongContentType("send it as it is, not compressed")
    try:
        body = await reservation.fill(request.stream(), max_bytes, within_s)
    except TimeoutError:
        if reservation.gave_way:
            raise _no_room() from None
        raise BodyTooSlow(f"a body has {within_s:g} seconds; send less") from None
    except ClientDisconnect:
        request.state.body_ended = True
        raise BodyCutOff("the sender went away before the end of the body") from None
    request.state.body_ended = True
    return body


def announced(request: Request, max_bytes: int) -> int:
    """The size that the header states, 0 if none. Raises if that is too large."""
    length = request.headers.get("content-length", "0")
    size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0
    if size > max_bytes:
        raise _too_large(max_bytes)
    return size


def is_left(request: Request) -> bool:
    """Whether some of the body may not have been read yet: the server would go on reading it."""
    if getattr(request.state, "body_ended", False):
        return False
    # These methods have no body unless a header announces one.
    unsaid = "0" if request.method in ("GET", "HEAD", "DELETE", "OPTIONS") else "unknown"
    return "transfer-encoding" in request.headers or request.headers.get("content-length", unsaid) != "0"


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {max_bytes} bytes; send less at once")


def _no_room() -> TooManyUploads:
    return TooManyUploads("too many uploads at once; try again later")
