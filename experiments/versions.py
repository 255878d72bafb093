"""Versions of the code that rows follow from beside their settings.

Raise one when the same seed gives other numbers: rows made before are stale then, the page says so, and they
are made again when their figure is run. `tests/unit/experiments/test_versions.py` notices.
"""

from collections.abc import Iterable

VERSIONS = {
    "draws": 2,
    "engine": 1,
    "noise": 1,
}
"""Batches and what parties in memory draw; exact gradients; helpers' noise, and how much an ε asks for."""

ALL = tuple(VERSIONS)


def named(parts: Iterable[str]) -> str:
    """As a row keeps them."""
    return ", ".join(f"{part} {VERSIONS[part]}" for part in parts)
