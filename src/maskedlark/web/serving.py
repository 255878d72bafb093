"""Runs a service: listens, announces its address when it answers, and stops without losing a request."""

import asyncio
import errno
import logging
import math
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from types import FrameType

import uvicorn
from fastapi import FastAPI
from prometheus_client import start_http_server
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

from maskedlark.web import metrics
from maskedlark.web.certificate import Certificate, Handshake
from maskedlark.web.config import Serving
from maskedlark.web.connections import Connection, ConnectionLimiter
from maskedlark.web.errors import CannotListen

__all__ = ["Inherited", "Serving", "serve"]

BACKLOG = 2048
MAX_HEAD = 1 << 14
"""Bytes of a request's first line and headers that are buffered until they are complete."""
OTHER_FILES = 256
"""Files that a service has open besides its connections: databases, columns, pipes to its processes."""
ACCEPTED_AT_ONCE = 64
"""Between two turns of the loop, which reads from those before; those that are cut free their files then."""
LET_IN_TURNS = 2
"""Turns of the loop: more than asyncio takes from accepting a connection to creating its protocol."""
RENEW_TICKS = 600
"""Tenths of a second until the files of the certificate are looked at again."""
ENDS_WITHIN_S = 5.0
"""After `stop_within_s`, for what the caller closes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inherited:
    """What one of several processes has from its parent (see `processes`)."""

    listening: socket.socket
    place: int
    """Its number among them, from 0."""
    ready: Pipe
    """Where it says that it serves, and where its metrics are."""

    def announce(self, metrics: str | None) -> None:
        """Say so, if the parent wants to know: it does once."""
        with suppress(OSError), self.ready:
            self.ready.send(metrics)


def serve(
    app: FastAPI,
    settings: Serving,
    inherited: Inherited | None = None,
    reload: Callable[[FastAPI], None] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are answered. SIGHUP calls `reload`."""
    if inherited and settings.metrics_port:
        settings = settings.model_copy(update={"metrics_port": settings.metrics_port + inherited.place})
    with inherited.listening if inherited else listen(settings.host, settings.port) as listening:
        server = _Server(app, settings, inherited, partial(reload, app))
        signal.signal(signal.SIGHUP, server.handle_hangup)
        if inherited:
            reload(app)  # They may have changed since the parent read them.
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Prints its address once it listens: whoever started it reads the port there."""

    def __init__(
        self, app: FastAPI, settings: Serving, inherited: Inherited | None, reload: Callable[[], None]
    ) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=[str(each) for each in settings.trusted_proxies],
            # Named, so that installed packages do not decide which parser strangers talk to.
            http="h11",
            ws="none",
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_keep_alive=math.ceil(settings.idle_s),
            timeout_graceful_shutdown=math.ceil(settings.stop_within_s),
        )
        super().__init__(config)
        self._state = app.state
        self._settings, self._inherited = settings, inherited
        self._limiter = ConnectionLimiter(_places(settings.max_connections), settings.idle_s)
        self._reload, self._hung_up = reload, False
        self._certificate = None
        if settings.certificate is not None and settings.certificate_key is not None:
            self._certificate = Certificate(settings.certificate, settings.certificate_key)
            app.state.readiness.checks.append(self._certificate.check)
            metrics.certificate(self._certificate.left_s, app.state.metrics)
        self._metrics = _show_metrics(app, settings)
        self._stop_at = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, with connections of ours."""
        await super().startup(sockets=[])
        # As many as asyncio accepts at a time: of several processes, none takes all that wait.
        at_once = min(ACCEPTED_AT_ONCE, 1 + self._limiter.most // 4) if self._inherited is None else 1
        for each in sockets or []:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_server(self._connection, sock=each, backlog=at_once))
            each.listen(BACKLOG)  # It has set that to the same number.
            if self._inherited is None:
                print(f"listening on {address(each, self._settings)}", flush=True)
        shown = None if self._metrics is None else f"http://{_name(self._metrics)}"
        if self._inherited is not None:
            self._inherited.announce(shown)
        elif shown is not None:
            print(f"metrics on {shown}", flush=True)

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """First signal: drain. Second: end at once, as in a power cut; nothing durable is lost."""
        if self._stop_at < math.inf:
            os._exit(128 + sig)
        self._stop_at = time.monotonic() + self._settings.drain_s
        self._state.draining = True
        # From now on every answer closes its connection: clients with more requests go elsewhere.
        self.config.encoded_headers = [*self.config.encoded_headers, CLOSE_HEADER]
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE_HEADER]
        threading.Thread(target=self._end_anyway, name="ending", daemon=True).start()

    def handle_hangup(self, _sig: int, _frame: FrameType | None) -> None:
        """Read again, soon, what can change."""
        self._hung_up = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to stop."""
        if self._certificate is not None and (self._hung_up or counter % RENEW_TICKS == 0):
            self._certificate.renew()
        if self._hung_up:
            self._hung_up = False
            self._reload()
        if counter % 10 == 0:
            self._limiter.sweep()
        self.should_exit = time.monotonic() >= self._stop_at
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening; answer what is under way; end."""
        # First stop accepting, and let the server register what was accepted: if it closed in between,
        # asyncio would drop that connection, neither answered nor closed.
        for each in sockets or []:
            asyncio.get_running_loop().remove_reader(each)
        for _ in range(LET_IN_TURNS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def _connection(self) -> asyncio.BaseProtocol:
        made = Connection(self.config, self.server_state, self.lifespan.state, self._limiter)
        if self._certificate is None:
            return made
        return Handshake(made, self._certificate.context, self._limiter, self._settings.idle_s)

    def _end_anyway(self) -> None:
        """Exit as in a power cut: a computing thread cannot be stopped, and Python would wait for it."""
        time.sleep(self._settings.drain_s + self._settings.stop_within_s + ENDS_WITHIN_S)
        _log.error("work did not end within stop_within_s: it is given up; who asked may ask again")
        os._exit(1)


def listen(host: str, port: int, wait_s: float = 0.0) -> socket.socket:
    """A socket on which nothing is accepted yet; waits so long for a port that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name TCP explicitly: only then does asyncio send small answers at once, not up to 40 ms later.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE and wait_s > 0:
            time.sleep(min(wait_s, 0.2))
            return listen(host, port, wait_s - 0.2)
        raise _cannot_listen(host, port, error) from None
    return listening


def _show_metrics(app: FastAPI, settings: Serving) -> socket.socket | None:
    """The metrics' socket, served by a thread of its own so that it answers while the loop is busy."""
    if settings.metrics_port is None:
        return None
    try:
        server, _ = start_http_server(settings.metrics_port, settings.metrics_host, app.state.metrics)
    except OSError as error:
        raise _cannot_listen(settings.metrics_host, settings.metrics_port, error) from None
    return server.socket


def _cannot_listen(host: str, port: int, error: OSError) -> CannotListen:
    return CannotListen(f"cannot listen on port {port} of {host}: {error.strerror}; choose another")


def _places(wanted: int) -> int:
    """The wanted number of connections, or the most that may be open here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY or wanted + OTHER_FILES <= hard:
        return wanted
    most = max(1, hard - OTHER_FILES)
    _log.warning("only %d files may be open: max_connections is %d, not %d", hard, most, wanted)
    return most


def address(listening: socket.socket, settings: Serving) -> str:
    """The address of a service, as it is announced."""
    return f"{'https' if settings.certificate else 'http'}://{_name(listening)}"


def _name(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"
