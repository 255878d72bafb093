"""Fixtures that every test may name, and settings that hold for all."""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.databases import _postgresql, database_url, postgresql_url, sqlite_url

__all__ = ["_postgresql", "database_url", "postgresql_url", "sqlite_url"]

# No assertion is about time: on a busy machine a deadline would be one.
settings.register_profile("maskedlark", deadline=None)
settings.load_profile("maskedlark")

LONGEST = (
    *("integration/test_tutorial.py", "integration/test_demo_page.py"),
    *("property/test_exact_twin.py", "integration/test_train_in_memory.py"),
    *("fuzz/test_endpoints.py", "simulation/test_kills.py"),
    *("statistical/test_canaries.py", "statistical/test_answers.py"),
    *("statistical/test_attacks.py", "statistical/test_observer.py"),
    *("integration/test_training.py", "unit/web/test_serving.py"),
    *("simulation/test_planted.py", "integration/test_backup.py"),
    *("unit/dp/test_session_charge.py", "integration/test_secrets.py"),
    *("integration/test_measuring.py", "integration/test_budget.py"),
    *("integration/test_function.py", "integration/test_hostile.py"),
    *("unit/training/test_training.py", "statistical/test_training_audit.py"),
)
"""Modules of which a test, or all together, took five seconds or more, longest first (`--durations=120`)."""
APART = "simulation/test_schedules.py"
"""Its tests have nothing in common, and are a third of the long run."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: it is never looked through for what is left over.

    What tests leave is looked for less often than is usual: they leave little, and looking took a tenth.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of what was selected, the longest come first in each part: each process begins with one part.

    Who has ended takes tests from the end of another's, but never the last two: those should be short.
    """
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.split("::")[0].removeprefix("tests/"), []).append(item)
    long = [modules.pop(name, []) for name in LONGEST]
    apart = modules.pop(APART, [])
    others = [item for module in modules.values() for item in module]
    size, ordered = len(items) // parts, []
    for place in range(parts):
        ordered += [item for module in long[place::parts] for item in module] + apart[place::parts]
        fill = (place + 1) * size - len(ordered) if place + 1 < parts else len(others)
        ordered += others[: max(0, fill)]
        del others[: max(0, fill)]
    items[:] = ordered
