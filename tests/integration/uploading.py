"""A browser that uploads to a running ad server, the service that it asks, and what it has stored."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn

from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.browser.upload import Settings, Uploader
from maskedlark.clock import SystemClock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.parameter_service.app import create_app
from maskedlark.parameter_service.publisher import Pinned, Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from tests.unit.adserver.stored import DIGEST, DOCUMENT, ORIGIN, arrivals
from tests.unit.browser.outbox import MemoryOutbox
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY

ALL = Selection(Purpose.TRAIN, DIGEST, 0, 2**40)
PATIENCE_S = 60
"""No assertion is about time; a test that hangs for this long has failed."""
BATCH = 5


@contextlib.contextmanager
def parameter_service(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of a service that has the document of these reports."""
    clock, pinned = SystemClock(), Pinned({ORIGIN: DOCUMENT_KEY.verifying})
    store = Store(folder / "parameters.db")
    Publisher(store, SERVICE_KEY, clock, pinned).publish(chain.sign(DOCUMENT, DOCUMENT_KEY))
    app = create_app(store, SERVICE_KEY, clock, pinned)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        store.close()


def command(database: str, folder: Path, service: str = "http://127.0.0.1:1") -> list[str]:
    """What an operator types, with settings in this folder."""
    keys = SERVICE_KEY.verifying.public.hex(), DOCUMENT_KEY.verifying.public.hex()
    (folder / "adserver.toml").write_text(
        f'origin = "{ORIGIN}"\ndatabase = "{database}"\nkey = "request.key"\ncache = "cache"\n'
        f'parameter_service = "{service}"\nservice_key = "{keys[0]}"\norigin_key = "{keys[1]}"\n'
    )
    words = ["-m", "maskedlark", "adserver", "serve", "--config", str(folder / "adserver.toml")]
    return [sys.executable, *words, "--log-level", "WARNING"]


def made(count: int, seed: bytes = b"seed") -> list[bytes]:
    return [each.data for each in arrivals(count, seed, hour=hour_of(SystemClock().now()))]


def uploader(address: str, client: httpx.Client, pending: MemoryOutbox) -> Uploader:
    settings = Settings(batch_reports=BATCH, first_wait_s=1, max_wait_s=1, idle_s=0.05)
    return Uploader(address, client, SystemClock(), SystemRandomness(), pending, settings)


@contextlib.contextmanager
def uploading(address: str, pending: MemoryOutbox) -> Iterator[None]:
    """A browser's background thread, for as long as the block runs."""
    stop = threading.Event()
    with httpx.Client() as client:
        thread = threading.Thread(target=uploader(address, client, pending).run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE_S)
    assert not thread.is_alive()


def stored(url: str) -> list[bytes]:
    database = open_database(url)
    found = [each.data for each in Reports(database, SystemClock()).read(ALL)]
    database.close()
    return found


@contextlib.contextmanager
def process(words: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process of its own, ended with the block whatever happens."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), line
            yield line.split()[-1], started
        finally:
            started.kill()


def when_empty(outbox: MemoryOutbox) -> threading.Event:
    finished = threading.Event()
    outbox.on_acknowledge = lambda: None if outbox.waiting else finished.set()
    return finished
