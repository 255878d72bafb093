"""Connections of strangers: a bounded number at once, and none that keeps us waiting for ever.

A connection keeps us waiting from when it was made, or its last answer was sent, until the head of its next
request is whole; while its request's body comes; and while it does not read an answer. Each byte that it
sends gives it no more time. When there are too many, the one that keeps us waiting longest is cut off: a
newcomer who asks at once is answered, however many others sit there and say nothing.
"""

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

READ_WITHIN_S = 60.0
"""For an answer to be read: its bytes are in our memory until then. Our clients wait no longer either."""
ASKS_WITHIN_S = 1.0
"""When the service stops: for who has just come, and has not said anything yet."""
MAX_UNREAD = 256 << 20
"""Of all answers together that are not read yet, in bytes."""


class Awaited(Enum):
    """What a connection owes us."""

    HEAD = auto()
    BODY = auto()
    """How long that may take is for who reads it to say."""
    READING = auto()


class ConnectionLimiter:
    """The connections that we wait for, in the order in which the waiting began. Of one loop's thread.

    A connection is known by its transport; once it is secured, a new one takes the place of the first.
    """

    def __init__(self, most: int, idle_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._now = now
        self._within_s = {Awaited.HEAD: idle_s, Awaited.READING: max(idle_s, READ_WITHIN_S)}
        self._there: set[asyncio.Transport] = set()
        self._since: dict[asyncio.Transport, tuple[Awaited, float]] = {}

    def __len__(self) -> int:
        """How many connections there are, those that we work for included."""
        return len(self._there)

    def add(self, connection: asyncio.Transport) -> None:
        """A new one: it gets a place, if need be that of who keeps us waiting longest."""
        while len(self) >= self.most and (longest := next(iter(self._since), None)) is not None:
            self._end(longest)
        # If we work for all the others it is one too many, and is told so when it asks. It goes when the
        # next one comes, so there never are many of those.
        self._there.add(connection)
        self.wait(connection, Awaited.HEAD)

    def wait(self, connection: asyncio.Transport, awaited: Awaited | None) -> None:
        """From now it owes us this; nothing if it is our turn. The clock runs on if it owed that before."""
        owed, _ = self._since.get(connection, (None, 0.0))
        if connection in self._there and owed is not awaited:
            self._since.pop(connection, None)
            if awaited is not None:
                self._since[connection] = awaited, self._now()

    def remove(self, connection: asyncio.Transport) -> None:
        """It is gone."""
        self._there.discard(connection)
        self._since.pop(connection, None)

    def sweep(self) -> None:
        """End those that took too long, and those that make us hold too much. Run every second."""
        now = self._now()
        for connection, (awaited, since) in list(self._since.items()):
            if now - since > self._within_s.get(awaited, float("inf")):
                self._end(connection)
        reading = [each for each, (awaited, _) in self._since.items() if awaited is Awaited.READING]
        held = {each: each.get_write_buffer_size() for each in reading}
        total = sum(held.values())
        for connection, size in held.items():
            if total > MAX_UNREAD:
                self._end(connection)
                total -= size

    def _end(self, connection: asyncio.Transport) -> None:
        """End it at once. Not `close`: that waits for a reader who may never read."""
        self.remove(connection)
        connection.abort()


class Connection(H11Protocol):
    """One connection that speaks HTTP/1.1."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], limiter: ConnectionLimiter
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._limiter = limiter
        self._one_too_many = False
        self._is_leaving = False
        self.unsecured: asyncio.Transport | None = None
        """What stood for it before it was secured."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there."""
        super().connection_made(transport)
        if self.unsecured is not None:
            self._limiter.remove(self.unsecured)
        self._limiter.add(transport)
        self._one_too_many = len(self._limiter) > self._limiter.most

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._limiter.remove(self.transport)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def handle_events(self) -> None:
        """Take what came."""
        self._one_too_many = self._one_too_many and len(self._limiter) > self._limiter.most
        # By this uvicorn decides whether to answer 503 instead of asking the app: always, or never.
        self.limit_concurrency = 0 if self._one_too_many else None
        super().handle_events()
        self._limiter.wait(self.transport, self._awaited())

    def on_response_complete(self) -> None:
        """The answer is written, if not yet read."""
        super().on_response_complete()
        self._limiter.wait(self.transport, self._awaited())

    def pause_writing(self) -> None:
        """The answer is not read as fast as it is written."""
        super().pause_writing()
        self._limiter.wait(self.transport, self._awaited())

    def resume_writing(self) -> None:
        """It is read."""
        super().resume_writing()
        self._limiter.wait(self.transport, self._awaited())

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; in the middle of another answer there is nothing to say."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def shutdown(self) -> None:
        """End it, once a request that is about to come, or has begun to, is answered: its last."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None and not self._is_leaving:
            self._is_leaving = True
            self.loop.call_later(ASKS_WITHIN_S, self.shutdown)
        elif not (self._between() and self.conn.trailing_data[0]) and not self.transport.is_closing():
            super().shutdown()

    def _between(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _awaited(self) -> Awaited | None:
        if self.flow.write_paused:
            return Awaited.READING
        if self._between():
            return Awaited.HEAD
        return Awaited.BODY if self.cycle.more_body else None
