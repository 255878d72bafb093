"""Connections of strangers: a bounded number, and none that keeps us waiting forever. Run by services.

A connection keeps us waiting from when it was made, or its last answer was sent, until the head of its next
request is complete; while its request's body arrives; and while it does not read an answer. Sending single
bytes gains no time. When there are too many, one is cut off, in the order of `Awaited`: first those that have
sent nothing, never a body that makes progress. So neither idle connections nor floods of them end an upload.
"""

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from itertools import chain
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


LEAST_RATE = 4096
"""Bytes per second of a body that makes progress."""
BODY_GRACE_S = 5.0
"""From the start of a body, or after bytes that came faster, until it counts as slower than that."""


class Awaited(Enum):
    """What a connection owes us; when there are too many, the first of these go first."""

    FIRST_BYTE = auto()
    HANDSHAKE = auto()
    """The rest of it."""
    HEAD = auto()
    BODY = auto()
    """Its time limit is set by whoever reads the body. Cut for others only if it makes no progress."""
    READING = auto()


EARLY = Awaited.FIRST_BYTE, Awaited.HANDSHAKE, Awaited.HEAD


class ConnectionLimiter:
    """The connections that we wait for, in the order in which the waiting began. Used by one loop's thread.

    A connection is identified by its transport; once TLS is established, by the new one.
    """

    def __init__(self, most: int, idle_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._now = now
        self._within_s = dict.fromkeys(EARLY, idle_s) | {Awaited.READING: max(idle_s, READ_WITHIN_S)}
        self._owed: dict[asyncio.Transport, Awaited | None] = {}
        self._since: dict[Awaited, dict[asyncio.Transport, float]] = {each: {} for each in Awaited}
        """When the waiting began; of a body, when it would have begun at `LEAST_RATE`."""
        self._slow: list[asyncio.Transport] = []
        """Bodies that made no progress at the last sweep: to find them for each newcomer would take long."""

    def __len__(self) -> int:
        """The number of connections, including those whose request is being answered."""
        return len(self._owed)

    def add(self, connection: asyncio.Transport, awaited: Awaited = Awaited.FIRST_BYTE) -> None:
        """Admit a connection, if need be in place of another."""
        while len(self) >= self.most and (victim := self._victim()) is not None:
            self._end(victim)
        # If none can go it is one too many, and gets a 503. The next newcomer replaces it, so there are never
        # many of those.
        self._owed[connection] = None
        self.wait(connection, awaited)

    def wait(self, connection: asyncio.Transport, awaited: Awaited | None) -> None:
        """Set what it owes us; None if it is our turn. If it owed that before, the clock keeps running."""
        owed = self._owed.get(connection)
        if connection not in self._owed or owed is awaited:
            return
        began = self._now() if owed is None else self._since[owed].pop(connection)
        self._owed[connection] = awaited
        if awaited is not None:
            keeps = owed is Awaited.FIRST_BYTE and awaited in EARLY
            self._since[awaited][connection] = began if keeps else self._now()

    def received(self, connection: asyncio.Transport, size: int) -> None:
        """Bytes came: if they are a body's, it may pause for longer."""
        bodies = self._since[Awaited.BODY]
        if connection in bodies:
            bodies[connection] = min(bodies[connection] + size / LEAST_RATE, self._now())

    def remove(self, connection: asyncio.Transport) -> None:
        """It is gone."""
        self.wait(connection, None)
        self._owed.pop(connection, None)

    def sweep(self) -> None:
        """End those that took too long, and those whose unread answers fill our memory. Run every second."""
        for awaited, within_s in self._within_s.items():
            for connection in self._late(awaited, within_s):
                self._end(connection)
        self._slow = self._late(Awaited.BODY, BODY_GRACE_S)
        held = {each: each.get_write_buffer_size() for each in self._since[Awaited.READING]}
        total = sum(held.values())
        for connection, size in held.items():
            if total > MAX_UNREAD:
                self._end(connection)
                total -= size

    def _late(self, awaited: Awaited, within_s: float) -> list[asyncio.Transport]:
        now = self._now()
        return [each for each, since in self._since[awaited].items() if now - since > within_s]

    def _victim(self) -> asyncio.Transport | None:
        """Whom to cut for a newcomer, if anyone."""
        bodies, now = self._since[Awaited.BODY], self._now()
        slow = (each for each in self._slow if now - bodies.get(each, now) > BODY_GRACE_S)
        early = (self._since[each] for each in EARLY)
        return next(chain(*early, slow, self._since[Awaited.READING]), None)

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
        self._limiter.add(transport, Awaited.HEAD if self.unsecured else Awaited.FIRST_BYTE)
        self._one_too_many = len(self._limiter) > self._limiter.most

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._limiter.remove(self.transport)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._limiter.received(self.transport, len(data))
        super().data_received(data)

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
