"""Services that these tests start are forked from a process that has imported what they need."""

from collections.abc import Iterator

import pytest

from tests import preloaded


@pytest.fixture(scope="session", autouse=True)
def _preloaded() -> Iterator[None]:
    with preloaded.installed():
        yield
