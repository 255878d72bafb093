import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskedlark.web import logs
from tests.unit.cli.helper_folder import World


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """What a `serve` in this very process does to the process, undone: its logs would be all tests' logs."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(logs, "configure", lambda *given: found.append(given))
    mask = os.umask(0o077)
    os.umask(mask)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield found
    os.umask(mask)
    for each, handler in handlers.items():
        signal.signal(each, handler)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A helper's folder, and a parameter service that its commands reach."""
    made = World(tmp_path, monkeypatch)
    yield made
    made.store.close()
