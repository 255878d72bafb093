"""Fixtures that every test may name, and settings that hold for all."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.databases import _postgresql, database_url, postgresql_url, sqlite_url

__all__ = ["_postgresql", "database_url", "postgresql_url", "sqlite_url"]

# No assertion is about time: on a busy machine a deadline would be one.
settings.register_profile("maskedlark", deadline=None)
settings.load_profile("maskedlark")

LONGEST = (
    (
        "integration/test_tutorial.py",
        "integration/test_measuring.py",
        "integration/test_training.py",
        "property/test_exact_twin.py",
        "simulation/test_schedules.py",
    ),
    (
        "integration/test_demo_page.py",
        "integration/test_train_in_memory.py",
        "statistical/test_training_audit.py",
        "fuzz/test_endpoints.py",
        "simulation/test_kills.py",
    ),
)
"""Modules whose single tests take longest: were they last, one process would wait for the other."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: it is never looked through for what is left over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, in each half: of two processes, each begins with one."""
    first, second = ([item for item in items if _module(item).endswith(names)] for names in LONGEST)
    long = {*first, *second}
    others = [item for item in items if item not in long]
    middle = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *others[:middle], *second, *others[middle:]]


def _module(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]
