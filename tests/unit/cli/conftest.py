import os
from collections.abc import Iterator

import pytest

from maskedlark.web import logs


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """What a `serve` in this very process does to the process, undone: its logs would be all tests' logs."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(logs, "configure", lambda *given: found.append(given))
    mask = os.umask(0o077)
    os.umask(mask)
    yield found
    os.umask(mask)
