"""Connections of strangers: a bounded number, and none that keeps us waiting forever. Run by services.

A connection keeps us waiting from when it was made, or its last answer was sent, until the head of its next
request is complete; while its request's body arrives; and while it does not read an answer. Sending single
bytes gains no time. When there are too many, the one that has kept us waiting longest is cut off: a newcomer
that sends its request at once is answered, however many idle ones there are.
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
"""For an answer to be read: we hold its bytes until then. Our own clients wait no longer either."""
ASKS_WITHIN_S = 1.0
"""When the service stops: for new connections that have sent nothing yet."""
MAX_UNREAD = 256 << 20
"""Bytes of all unread answers together."""


class Awaited(Enum):
    """What a connection owes us."""

    HEAD = auto()
    BODY = auto()
    """Its time limit is set by whoever reads the body."""
    READING = auto()


class ConnectionLimiter:
    """The connections that we wait for, in the order in which the waiting began. Used by one loop's thread.

    A connection is identified by its transport; once TLS is established, by the new one.
    """

    def __init__(self, most: int, idle_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._now = now
        self._within_s = {Awaited.HEAD: idle_s, Awaited.READING: max(idle_s, READ_WITHIN_S)}
        self._there: set[asyncio.Transport] = set()
        self._since: dict[asyncio.Transport, tuple[Awaited, float]] = {}

    def __len__(self) -> int:
        """The number of connections, including those whose request is being answered."""
        return len(self._there)

    def add(self, connection: asyncio.Transport) -> None:
        """Admit a connection, if need be in place of the one that has kept us waiting longest."""
        while len(self) >= self.most and (longest := next(iter(self._since), None)) is not None:
            self._end(longest)
        # If all others are being answered it is one too many, and gets a 503. The next newcomer replaces it,
        # so there are never many of those.
        self._there.add(connection)
        self.wait(connection, Awaited.HEAD)

    def wait(self, connection: asyncio.Transport, awaited: Awaited | None) -> None:
        """Set what it owes us; None if it is our turn. If it owed that before, the clock keeps running."""
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
        """End those that took too long, and those whose unread answers fill our memory. Run every second."""
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
        """Abort it. Not `close`: that waits for a reader that may never read."""
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
        """The transport that identified it before TLS was established."""

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
        """Handle what was received."""
        self._one_too_many = self._one_too_many and len(self._limiter) > self._limiter.most
        # By this uvicorn decides whether to answer 503 instead of calling the app: always, or never.
        self.limit_concurrency = 0 if self._one_too_many else None
        super().handle_events()
        self._limiter.wait(self.transport, self._awaited())

    def on_response_complete(self) -> None:
        """The answer is written, though perhaps not yet read."""
        super().on_response_complete()
        self._limiter.wait(self.transport, self._awaited())

    def pause_writing(self) -> None:
        """The peer reads the answer more slowly than we write it."""
        super().pause_writing()
        self._limiter.wait(self.transport, self._awaited())

    def resume_writing(self) -> None:
        """The peer has caught up."""
        super().resume_writing()
        self._limiter.wait(self.transport, self._awaited())

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, unless another answer is being sent."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def shutdown(self) -> None:
        """End it after answering one last request, if one is arriving or about to."""
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
