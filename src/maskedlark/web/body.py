"""Reading a stranger's body: never more than the limit, never for longer, never too many at once."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from maskedlark.web.errors import BodyCutOff, BodyTooLarge, BodyTooSlow, TooManyUploads, WrongContentType

GRACE_S = 2.0
"""For so long a body may come in peace, however many others want its room."""


class Room:
    """Room for bodies, in bytes: what was not sent takes none. It bounds what strangers make us hold.

    Of one loop's thread.

    When none is left, the body that has been coming for longest gives way: who sends a little now and then,
    or stops before the end, cannot keep out those who send and go.
    """

    def __init__(self, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._free = most_bytes
        self._coming: dict[Place, None] = {}
        """In the order in which they began."""

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """Room for one body, for as long as the block runs."""
        place = Place(self, self._now())
        self._coming[place] = None
        try:
            yield place
        finally:
            self._empty(place)

    def take(self, place: "Place", size: int) -> None:
        """So many bytes more. Raises if it gave way, or if there is no room and nobody who should."""
        while self._free < size and (longest := self._longest(place)) is not None:
            self._empty(longest)
            longest.give_way()
        if self._free < size or place.gave_way:
            raise _no_room()
        self._free -= size
        place.held += size

    def came(self, place: "Place") -> None:
        """The body is whole: it keeps its room, and gives way to nobody."""
        self._coming.pop(place, None)

    def _longest(self, taker: "Place") -> "Place | None":
        longest = next((each for each in self._coming if each is not taker and each.held), None)
        return longest if longest and self._now() - longest.since > GRACE_S else None

    def _empty(self, place: "Place") -> None:
        self._free += place.held
        place.held = 0
        self._coming.pop(place, None)


class Place:
    """The room that one body takes."""

    def __init__(self, room: Room, since: float) -> None:
        self._room = room
        self._clock: asyncio.Timeout | None = None
        self.since = since
        self.held = 0
        self.gave_way = False

    def give_way(self) -> None:
        """Stop to read it: others need the room."""
        self.gave_way = True
        if self._clock is not None:
            self._clock.reschedule(0)

    async def fill(self, chunks: AsyncIterable[bytes], most_bytes: int, within_s: float) -> bytes:
        """What comes, once all is there."""
        body = bytearray()
        async with asyncio.timeout(within_s) as self._clock:
            async for chunk in chunks:
                if len(body) + len(chunk) > most_bytes:
                    raise _too_large(most_bytes)
                self._room.take(self, len(chunk))
                body += chunk
        self._room.came(self)
        return bytes(body)


async def read(request: Request, most_bytes: int, within_s: float, place: Place) -> bytes:
    """The request's body. Run by every service."""
    # What a header promises is refused before a byte is read; what it does not promise, while it comes.
    if _promised(request) > most_bytes:
        raise _too_large(most_bytes)
    # A few bytes would become many, at our cost.
    if request.headers.get("content-encoding", "identity") != "identity":
        raise WrongContentType("send it as it is, not compressed")
    try:
        body = await place.fill(request.stream(), most_bytes, within_s)
    except TimeoutError:
        if place.gave_way:
            raise _no_room() from None
        raise BodyTooSlow(f"a body has {within_s:g} seconds; send less") from None
    except ClientDisconnect:
        request.state.body_ended = True
        raise BodyCutOff("the sender went away before the end of the body") from None
    request.state.body_ended = True
    return body


def is_left(request: Request) -> bool:
    """Whether some of the request's body may not have been read: a server would read it, to no end."""
    if getattr(request.state, "body_ended", False):
        return False
    # Of other methods nobody expects a body, and one that comes is announced.
    unsaid = "0" if request.method in ("GET", "HEAD", "DELETE", "OPTIONS") else "unknown"
    return "transfer-encoding" in request.headers or request.headers.get("content-length", unsaid) != "0"


def _promised(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _too_large(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {most_bytes} bytes; send less at once")


def _no_room() -> TooManyUploads:
    return TooManyUploads("too many uploads at once; try again later")
