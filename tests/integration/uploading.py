"""A browser that uploads to a running ad server, and what the ad server has stored."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.browser.upload import Settings, Uploader
from maskedlark.clock import SystemClock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from tests.unit.adserver.stored import DIGEST, ORIGIN, arrivals
from tests.unit.browser.outbox import MemoryOutbox
from tests.unit.parameters.cases import DOCUMENT_KEY

ALL = Selection(Purpose.TRAIN, DIGEST, 0, 2**40)
PATIENCE_S = 60
"""No assertion is about time; a test that hangs for this long has failed."""
BATCH = 5


def command(database: str, folder: Path) -> list[str]:
    """What an operator types, with settings in this folder."""
    key = DOCUMENT_KEY.verifying.public.hex()
    (folder / "adserver.toml").write_text(
        f'origin = "{ORIGIN}"\ndatabase = "{database}"\nkey = "request.key"\ncache = "cache"\n'
        f'parameter_service = "http://127.0.0.1:1"\nservice_key = "{key}"\norigin_key = "{key}"\n'
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
