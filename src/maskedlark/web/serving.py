"""Running a service: on a socket of its own, announced when it answers, stopped without losing a request."""

import signal
import socket
import sys

import uvicorn
from fastapi import FastAPI

STOP_WITHIN_S = 10
BACKLOG = 2048
IDLE_S = 15
"""A connection on which nothing is asked for so long is closed."""
MOST_CONNECTIONS = 1024
"""Whoever comes beyond is sent away at once, with 503."""


class _Announced(uvicorn.Server):
    """Says where it listens once it does: whoever started it reads the port there."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            host, port = each.getsockname()[:2]
            print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)


def serve(app: FastAPI, host: str, port: int, most_connections: int = MOST_CONNECTIONS) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are answered. Port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then does asyncio send small answers at once, instead of up to 40 ms later.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        config = _config(app, most_connections)
        # uvicorn raises the signal again when it has stopped; to have been told to stop is no failure, and
        # to be told before it has started is reason enough to end at once.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit(0))
        _Announced(config).run(sockets=[listening])


def _config(app: FastAPI, most_connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        # Named, so that what else is installed does not decide which parser strangers talk to.
        http="h11",
        limit_concurrency=most_connections,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
