"""Services that simulations start are forked from a process that has imported what they need."""

from collections.abc import Iterator

import pytest

from maskedlark.adserver import upload_limits
from tests import preloaded


@pytest.fixture(autouse=True)
def _looks_at_the_disk_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a second: by the clock, an injected fault would meet another step each time."""
    monkeypatch.setattr(upload_limits, "LOOK_S", 0.0)


@pytest.fixture(scope="session", autouse=True)
def _preloaded() -> Iterator[None]:
    with preloaded.installed():
        yield
