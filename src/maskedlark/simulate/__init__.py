"""Populations of browsers: how experiments, load tests and the demo get their data; and one's own table."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maskedlark.browser.population import Population, processes

if TYPE_CHECKING:
    from maskedlark.simulate.scene import Scene as Scene
    from maskedlark.simulate.scene import start as start

__all__ = ["Population", "Scene", "processes", "start"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    # When it is asked for: processes that make reports start without databases and HTTP.
    if name not in ("Scene", "start"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.scene"), name)
